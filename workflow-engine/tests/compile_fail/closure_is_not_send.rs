//! A step holds something over an await that cannot move between threads.
use latchwork_engine::WorkflowBuilder;
use std::{future::ready, rc::Rc};

fn steps(flow: &mut WorkflowBuilder<u32>) {
    flow.run("count", async |count, _cx| {
        let shared = Rc::new(*count);
        ready(()).await;
        Ok(*shared)
    });
}

fn main() {}
