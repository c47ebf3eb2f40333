//! A type without `StepBody` is used as a step.
use latchwork_engine::WorkflowBuilder;

#[derive(Default)]
struct ReserveStock;

fn steps(flow: &mut WorkflowBuilder<u32>) {
    flow.step::<ReserveStock>("reserve stock");
}

fn main() {}
