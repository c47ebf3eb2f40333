//! Versions: a workflow is changed while an instance of it waits. The old version runs beside the new one; a change without a new version is refused, and told
//! with its difference.
//!
//! `cargo run --example versions`

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use latchwork::{HostError, WorkflowHostBuilder, define, orphans, prelude::*};

#[derive(Clone, Default, Serialize, Deserialize)]
struct Order {
    log: Vec<String>,
    /// Younger than the first version, whose instances do not have it.
    #[serde(default)]
    gift: bool,
}

/// As it was last month.
struct First;

impl Workflow for First {
    type Data = Order;
    const ID: &'static str = "order";
    const VERSION: u32 = 1;

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        flow.wait_for("paid", |_| "all".to_owned());
        flow.run("ship", async |_, _| Ok(())).output(|(), order| order.log.push("shipped".into()));
    }
}

/// The same id, the next version.
struct Second;

impl Workflow for Second {
    type Data = Order;
    const ID: &'static str = "order";
    const VERSION: u32 = 2;

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        flow.wait_for("paid", |_| "all".to_owned());
        flow.when(
            "gift?",
            |order| order.gift,
            |gift| {
                gift.run("wrap", async |_, _| Ok(())).output(|(), order| order.log.push("wrapped".into()));
            },
        );
        flow.run("ship", async |_, _| Ok(())).output(|(), order| order.log.push("shipped".into()));
    }
}

/// A mistake: other steps under the old version.
struct Forgotten;

impl Workflow for Forgotten {
    type Data = Order;
    const ID: &'static str = "order";
    const VERSION: u32 = 1;

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        flow.wait_for("money", |_| "all".to_owned());
        flow.run("ship", async |_, _| Ok(()));
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("orders.db").to_string_lossy().into_owned();
    let host = |workflows: fn(WorkflowHostBuilder) -> WorkflowHostBuilder| {
        let backends = WorkflowHost::builder().use_local_locking().use_local_queue().use_sqlite_persistence(&file);
        workflows(backends).start()
    };

    // Last month's program leaves an order that waits.
    let program = host(|b| b.workflow(First)).await?;
    let old = program.start_workflow::<First>(Order::default()).await?.id().clone();
    let stands_at = || async { orphans(&**program.store(), &define(&Forgotten)?).await.map_err(anyhow::Error::from) };
    // Before a change is deployed one can ask who stands at steps that it does not have.
    let mut stranded = stands_at().await?;
    while stranded.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        stranded = stands_at().await?;
    }
    ensure!(stranded.len() == 1 && stranded[0].instance == old, "{stranded:?}");
    println!("{} stands at {:?}", stranded[0].instance, stranded[0].steps);
    program.stop().await?;

    // The change under the old version is refused. The host runs on, with its other workflows.
    let program = host(|b| b.workflow(Forgotten)).await?;
    match program.start_workflow::<Forgotten>(Order::default()).await {
        Err(HostError::ShapeChanged { difference, .. }) => println!("refused: {difference}"),
        other => bail!("not refused: {other:?}"),
    }
    program.stop().await?;

    // This month's program has both versions; each instance stays with its own.
    let program = host(|b| b.workflow(First).workflow(Second)).await?;
    let new = program.start_workflow::<Second>(Order { gift: true, ..Order::default() }).await?;
    program.publish_event("paid", "all", ()).await?;
    let limit = Duration::from_secs(30);
    ensure!(program.workflow_instance::<First>(old).completion().timeout(limit).await?.log == ["shipped"]);
    ensure!(new.completion().timeout(limit).await?.log == ["wrapped", "shipped"]);
    println!("the old order and the new one are shipped");
    program.stop().await?;
    Ok(())
}
