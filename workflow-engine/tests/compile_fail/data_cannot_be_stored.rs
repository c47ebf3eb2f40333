//! The workflow's data lacks `Serialize`.
use latchwork_engine::{Workflow, WorkflowBuilder};

#[derive(Clone, serde::Deserialize)]
struct Order;

struct OrderWorkflow;

impl Workflow for OrderWorkflow {
    type Data = Order;
    const ID: &'static str = "order";
    fn build(&self, _flow: &mut WorkflowBuilder<Order>) {}
}

fn main() {}
