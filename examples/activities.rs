//! Activities: work that is done outside, by workers that compete for it. One of them falls asleep over its work; when its time is over another one gets
//! it, and the late result is refused.
//!
//! `cargo run --example activities`

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use latchwork::{
    prelude::*,
    store::{ActivityClaim, ActivityOutcome, SubmitOutcome},
};
use serde_json::json;

#[derive(Clone, Serialize, Deserialize)]
struct Loan {
    amount: u32,
    approved: bool,
}

struct Lend;

impl Workflow for Lend {
    type Data = Loan;
    const ID: &'static str = "lend";

    fn build(&self, flow: &mut WorkflowBuilder<Loan>) {
        flow.activity("approve loan", |loan| json!({ "amount": loan.amount }))
            .output(|approved: bool, loan| loan.approved = approved)
            // A worker's failure is an error of the step: it is offered again, three times in all.
            .on_error(Retry::fixed(Duration::from_millis(10)).max_attempts(3).then_terminate());
    }
}

/// Asks until there is something to do.
async fn next(host: &WorkflowHost, worker: &str, lease: Duration) -> Result<ActivityClaim> {
    let ask = async {
        loop {
            if let Some(claim) = host.claim_activity(&["approve loan"], worker, lease).await? {
                println!("{worker} has it");
                return Ok(claim);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ask).await.context("nothing to do")?
}

#[tokio::main]
async fn main() -> Result<()> {
    let host =
        WorkflowHost::builder().use_local_locking().use_local_queue().use_memory_persistence().workflow(Lend).start().await?;
    let limit = Duration::from_secs(30);

    // The token is the worker's, for as long as it asked for.
    let loan = host.start_workflow::<Lend>(Loan { amount: 700, approved: false }).await?;
    let sleepy = next(&host, "the sleepy worker", Duration::from_millis(20)).await?;
    let awake = next(&host, "the other worker", Duration::from_secs(60)).await?;
    ensure!(sleepy.instance == awake.instance, "it is the same piece of work");
    let late = host.submit_activity(&sleepy.token, ActivityOutcome::Success(json!(false))).await?;
    ensure!(late == SubmitOutcome::Refused, "its time is over");
    let parameters: serde_json::Value = serde_json::from_str(awake.parameters.as_ref().context("parameters")?.as_str())?;
    let approved = parameters["amount"].as_u64() < Some(1_000);
    let accepted = host.submit_activity(&awake.token, ActivityOutcome::Success(json!(approved))).await?;
    ensure!(matches!(accepted, SubmitOutcome::Accepted(_)), "{accepted:?}");
    ensure!(loan.completion().timeout(limit).await?.approved);

    // One that gives its work back at once, and one that fails for good.
    let loan = host.start_workflow::<Lend>(Loan { amount: 9_000, approved: false }).await?;
    let claim = next(&host, "a worker without time", Duration::from_secs(60)).await?;
    ensure!(host.release_activity(&claim.token).await?);
    for _ in 0..3 {
        let claim = next(&host, "a worker without luck", Duration::from_secs(60)).await?;
        host.submit_activity(&claim.token, ActivityOutcome::Failure(json!("the register does not answer"))).await?;
    }
    let failed = loan.completion().timeout(limit).await.err().context("it was terminated")?;
    ensure!(failed.to_string().contains("the register does not answer"), "{failed}");
    ensure!(loan.errors().await?.len() == 3);
    println!("{failed}");
    host.stop().await?;
    Ok(())
}
