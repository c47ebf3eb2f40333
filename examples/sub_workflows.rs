//! Sub-workflows: an order has each of its parcels delivered by an instance of its own. One delivery fails and is tried again as another instance; another
//! order is cancelled, and its deliveries end with it.
//!
//! `cargo run --example sub_workflows`

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use latchwork::{prelude::*, store::InstanceQuery};

#[derive(Clone, Serialize, Deserialize)]
struct Parcel {
    sku: String,
    tracking: Option<String>,
}

/// Loses the first parcel that it is given.
struct Carrier(AtomicBool);

struct Deliver;

impl Workflow for Deliver {
    type Data = Parcel;
    const ID: &'static str = "deliver";

    fn build(&self, flow: &mut WorkflowBuilder<Parcel>) {
        flow.run("hand over", async |parcel, cx| {
            if parcel.sku == "vase" && !cx.service::<Carrier>()?.0.swap(true, Ordering::Relaxed) {
                return Err("the parcel is lost".into());
            }
            Ok(format!("T-{}", parcel.sku))
        })
        .output(|tracking, parcel| parcel.tracking = Some(tracking))
        // Its parent shall know at once.
        .on_error(Retry::never().then_terminate());
        flow.when("slow?", |parcel| parcel.sku == "piano", |slow| slow.delay("by ship", Duration::from_hours(1_000)));
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Order {
    skus: Vec<String>,
    tracking: Vec<String>,
}

struct Fulfil;

impl Workflow for Fulfil {
    type Data = Order;
    const ID: &'static str = "fulfil";

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        flow.for_each(
            "parcels",
            |order| order.skus.clone(),
            |each| {
                each.sub_workflow::<Deliver>("deliver", |(_order, sku)| Parcel { sku: sku.clone(), tracking: None })
                    .output(|parcel, order| order.tracking.extend(parcel.tracking))
                    // Another try is another instance.
                    .on_error(Retry::fixed(Duration::from_millis(10)).max_attempts(2));
            },
        );
    }
}

fn order(skus: &[&str]) -> Order {
    Order { skus: skus.iter().map(ToString::to_string).collect(), tracking: Vec::new() }
}

#[tokio::main]
async fn main() -> Result<()> {
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_memory_persistence()
        .service(Carrier(AtomicBool::new(false)))
        .workflow(Fulfil)
        .workflow(Deliver)
        .start()
        .await?;
    let limit = Duration::from_secs(30);

    let done = host.start_workflow::<Fulfil>(order(&["tea", "vase", "lamp"])).await?;
    let mut tracking = done.completion().timeout(limit).await?.tracking;
    tracking.sort();
    ensure!(tracking == ["T-lamp", "T-tea", "T-vase"], "{tracking:?}");
    let children = host.find(&InstanceQuery::new().with_parent(done.id().clone())).await?.items;
    let statuses: Vec<_> = children.iter().map(|child| child.header.status).collect();
    ensure!(statuses.iter().filter(|status| **status == WorkflowStatus::Complete).count() == 3, "{statuses:?}");
    ensure!(statuses.iter().filter(|status| **status == WorkflowStatus::Terminated).count() == 1, "{statuses:?}");
    println!("{} deliveries for three parcels, because one was lost", children.len());

    // A child ends with the one that waits for it.
    let cancelled = host.start_workflow::<Fulfil>(order(&["piano"])).await?;
    let query = InstanceQuery::new().with_parent(cancelled.id().clone());
    let child = loop {
        match host.find(&query).await?.items.pop() {
            Some(child) => break host.instance(child.header.id),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    cancelled.terminate("the customer has thought better of it").await?;
    let ended = tokio::time::timeout(limit, child.ended()).await??;
    ensure!(ended.status() == WorkflowStatus::Terminated);
    println!("the piano stays here");
    host.stop().await?;
    Ok(())
}
