//! Middleware and life-cycle events: code around every step and every workflow, a hook at every end, and a subscriber.
//!
//! `cargo run --example middleware`

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use latchwork::{Next, StepMiddleware, WorkflowContext, WorkflowMiddleware, core::async_trait, hub::LifeCycleKind, prelude::*};

/// What everybody here writes down.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Measures each run of each step.
struct Stopwatch(Journal);

#[async_trait]
impl StepMiddleware for Stopwatch {
    async fn run(&self, cx: &StepContext, next: Next<'_>) -> StepResult {
        let began = Instant::now();
        let answer = next.run().await;
        println!("`{}`, try {}: {:?}", cx.step(), cx.attempt(), began.elapsed());
        self.0.note(format!("{} {}", cx.step(), if answer.is_ok() { "done" } else { "failed" }));
        answer
    }
}

/// Answers in place of a step that must not run on this machine.
struct NoMail;

#[async_trait]
impl StepMiddleware for NoMail {
    async fn run(&self, cx: &StepContext, next: Next<'_>) -> StepResult {
        if cx.step() == "send mail" { next.answer(String::from("not sent")) } else { next.run().await }
    }
}

/// Refuses starts, and is told of every end: durable, at least once, before the end is stored.
struct Gate(Journal);

#[async_trait]
impl WorkflowMiddleware for Gate {
    async fn before_start(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        match workflow.data::<String>().is_some_and(String::is_empty) {
            true => Err("an empty letter".into()),
            false => Ok(()),
        }
    }

    async fn at_end(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        self.0.note(format!("{} is {}", workflow.definition(), workflow.status()));
        Ok(())
    }
}

struct Letter;

impl Workflow for Letter {
    type Data = String;
    const ID: &'static str = "letter";

    fn build(&self, flow: &mut WorkflowBuilder<String>) {
        flow.run("fold", async |_, cx| if cx.attempt() < 2 { Err("the paper slips".into()) } else { Ok(()) })
            .on_error(Retry::fixed(Duration::from_millis(5)));
        flow.run("send mail", async |_, _| Err::<String, _>("there is no mail server here".into()))
            .output(|answer, letter| letter.push_str(&format!(" ({answer})")));
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let journal = Journal::default();
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_memory_persistence()
        .step_middleware(Stopwatch(journal.clone())) // the outermost
        .step_middleware(NoMail)
        .workflow_middleware(Gate(journal.clone()))
        .workflow(Letter)
        .start()
        .await?;
    let mut events = host.subscribe();

    let refused = host.start_workflow::<Letter>(String::new()).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("an empty letter")));

    let letter = host.start_workflow::<Letter>("Dear Ada".to_owned()).await?;
    ensure!(letter.completion().timeout(Duration::from_secs(30)).await? == "Dear Ada (not sent)");
    ensure!(journal.lines() == ["fold failed", "fold done", "send mail done", "letter is complete"], "{:?}", journal.lines());

    // Sent after the commits, best effort.
    let mut errors = 0;
    while let Some(event) = tokio::time::timeout(Duration::from_secs(30), events.next()).await? {
        println!("{:?}", event.kind);
        errors += u32::from(matches!(event.kind, LifeCycleKind::Error { .. }));
        if event.kind == LifeCycleKind::Completed {
            break;
        }
    }
    ensure!(errors == 1);
    host.stop().await?;
    Ok(())
}
