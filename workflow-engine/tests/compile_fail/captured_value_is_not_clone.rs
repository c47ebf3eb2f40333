//! A step takes a value along that it would use up in its first run.
use latchwork_engine::WorkflowBuilder;
use std::sync::Mutex;

fn steps(flow: &mut WorkflowBuilder<u32>) {
    let seen = Mutex::new(0_u32);
    flow.run("count", async move |count, _cx| Ok(seen.lock().is_ok_and(|seen| *seen == *count)));
}

fn main() {}
