//! Queries and retention: business keys, references and attributes, pages of instances, errors and history, and what is left of instances that are deleted.
//!
//! `cargo run --example queries_and_retention`

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use latchwork::{
    prelude::*,
    store::{AttributeValue, Comparison, InstanceQuery, PurgeRequest},
};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    total: u32,
    shipped: bool,
}

struct Ship;

impl Workflow for Ship {
    type Data = Order;
    const ID: &'static str = "ship";

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        flow.run("check", async |order, _cx| if order.total > 9_000 { Err("far too dear".into()) } else { Ok(()) })
            .on_error(Retry::fixed(Duration::from_millis(5)).max_attempts(2));
        flow.run("ship", async |_, _| Ok(())).output(|(), order| order.shipped = true);
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_sqlite_persistence(folder.path().join("orders.db").to_string_lossy())
        // In the background: what was ended early is kept for a month. Complete instances stay until they are purged, below.
        .retention(Retention::new().with_terminated(Keep::For(Duration::from_hours(30 * 24))))
        .workflow(Ship)
        .start()
        .await?;
    let limit = Duration::from_secs(30);

    for (key, total) in [("A-1", 20), ("A-2", 200), ("A-3", 2_000)] {
        let start = host.start_workflow::<Ship>(Order { total, shipped: false }).business_key(key).reference("web shop, spring");
        start.attribute("total", AttributeValue::Number(f64::from(total))).await?.completion().timeout(limit).await?;
    }
    // A second start with the same key finds the first instance.
    let again = host.start_workflow::<Ship>(Order { total: 1, shipped: false }).business_key("A-2").await?;
    ensure!(!again.was_created() && again.data().await?.total == 200);

    // Page by page.
    let mut query = InstanceQuery::new().with_definition("ship").with_status([WorkflowStatus::Complete]).with_text("spring");
    query = query.with_attribute("total", Comparison::AtLeast, AttributeValue::Number(100.0)).with_limit(1);
    let mut keys = Vec::new();
    loop {
        let page = host.find(&query).await?;
        keys.extend(page.items.iter().filter_map(|found| found.header.business_key.clone()));
        match page.items.last() {
            Some(last) if page.more => query = query.after(last.header.id.clone()),
            _ => break,
        }
    }
    ensure!(keys == ["A-2", "A-3"], "{keys:?}");

    // One that has failed: what happened, and the end of it.
    let dear = host.start_workflow::<Ship>(Order { total: 10_000, shipped: false }).business_key("A-4").await?;
    let suspended = InstanceQuery::new().with_status([WorkflowStatus::Suspended]);
    while host.find(&suspended).await?.items.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for error in dear.errors().await? {
        println!("{}, try {}: {}", error.step, error.attempt, error.message);
    }
    ensure!(dear.errors().await?.len() == 2);
    dear.terminate("nobody buys that").await?;
    ensure!(tokio::time::timeout(limit, dear.ended()).await??.status() == WorkflowStatus::Terminated);

    // The history of one that went well, step by step.
    let found = host.find_by_key::<Ship>("A-1").await?.context("it is there")?;
    let steps: Vec<_> = found.history(0, 100).await?.items.iter().map(|pointer| pointer.step.to_string()).collect();
    ensure!(steps == ["check", "ship"], "{steps:?}");

    // Deleted by hand; the key and the result outlive it for a while.
    let purged = host.purge(&PurgeRequest::new().with_instances(Duration::ZERO).with_status([WorkflowStatus::Complete])).await?;
    let left = host.statistics().await?;
    ensure!((purged.instances, left.complete, left.terminated) == (3, 0, 1), "{purged:?} {left:?}");
    let again = host.start_workflow::<Ship>(Order { total: 1, shipped: false }).business_key("A-3").await?;
    ensure!(!again.was_created() && again.completion().timeout(limit).await?.total == 2_000);
    println!("three instances are deleted, their keys and results are remembered");
    host.stop().await?;
    Ok(())
}
