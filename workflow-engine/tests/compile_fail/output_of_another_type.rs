//! An output puts a text where the data have a number.
use latchwork_engine::WorkflowBuilder;

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Order {
    parcels: u32,
}

fn steps(flow: &mut WorkflowBuilder<Order>) {
    flow.run("count", async |_order, _cx| Ok(String::from("two"))).output(|count, order| order.parcels = count);
}

fn main() {}
