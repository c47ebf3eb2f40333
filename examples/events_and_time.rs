//! Events and time: a wait with a limit, reminders that recur until they are no longer needed, a branch for later, and a restart in the middle. An
//! invoice is waited for. What takes weeks takes milliseconds here.
//!
//! `cargo run --example events_and_time`

use std::{path::Path, time::Duration};

use anyhow::Result;
use latchwork::{AfterCancel, prelude::*};

const WEEK: Duration = Duration::from_millis(50);

#[derive(Clone, Serialize, Deserialize)]
struct Invoice {
    number: String,
    weeks: u32,
    paid: Option<u32>,
    reminders: u32,
    archived: bool,
}

impl Invoice {
    fn new(number: &str, weeks: u32) -> Self {
        Self { number: number.to_owned(), weeks, paid: None, reminders: 0, archived: false }
    }
}

struct Collect;

impl Workflow for Collect {
    type Data = Invoice;
    const ID: &'static str = "collect";

    fn build(&self, flow: &mut WorkflowBuilder<Invoice>) {
        // Beside the main way: at once, and then every week, until the money is there or is waited for no more.
        flow.recur("reminders", WEEK, |each| {
            each.run("remind", async |invoice, _cx| {
                println!("{}: please pay", invoice.number);
                Ok(())
            })
            .output(|(), invoice| invoice.reminders += 1);
        })
        .cancel_when(|invoice| invoice.paid.is_some(), AfterCancel::Stop);
        // Beside the main way, once, later.
        flow.schedule("a while later", WEEK / 2, |later| {
            later.run("archive", async |_, _| Ok(())).output(|(), invoice| invoice.archived = true);
        });
        // An event with this key, published before or after the wait began.
        flow.wait_for("paid", |invoice| invoice.number.clone())
            .output(|cents: u32, invoice| invoice.paid = Some(cents))
            .timeout(60 * WEEK)
            .on_timeout(|late| {
                late.run("write off", async |_, _| Ok(())).output(|(), invoice| invoice.paid = Some(0));
            });
        // A time that depends on the data.
        flow.delay_by("keep", |invoice| invoice.weeks * WEEK);
    }
}

async fn host(file: &Path) -> Result<WorkflowHost> {
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_sqlite_persistence(file.to_string_lossy())
        .workflow(Collect);
    Ok(host.start().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("invoices.db");
    let limit = Duration::from_secs(30);

    // One is paid early, one never, and one after a restart.
    let first = host(&file).await?;
    first.publish_event("paid", "R-1", 1_999).await?;
    let never = first.start_workflow::<Collect>(Invoice::new("R-2", 0)).await?.id().clone();
    let late = first.start_workflow::<Collect>(Invoice::new("R-3", 1)).await?;
    while late.data().await?.reminders == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let late = late.id().clone();
    first.stop().await?;
    println!("the first host is gone, nothing is lost");

    let second = host(&file).await?;
    let late = second.workflow_instance::<Collect>(late);
    second.publish_event("paid", "R-3", 500).await?;
    let late = late.completion().timeout(limit).await?;
    assert_eq!((late.paid, late.archived), (Some(500), true));
    assert!(late.reminders >= 1);

    // An event counts since the creation of an instance. This one was published before: it does not.
    let early = second.start_workflow::<Collect>(Invoice::new("R-1", 0)).await?;
    second.publish_event("paid", "R-1", 2_000).await?;
    assert_eq!(early.completion().timeout(limit).await?.paid, Some(2_000));

    let never = second.workflow_instance::<Collect>(never).completion().timeout(limit).await?;
    assert_eq!(never.paid, Some(0), "the wait has its limit");
    assert!(never.reminders >= 2);
    println!("R-2 was reminded of {} times, and written off", never.reminders);
    second.stop().await?;
    Ok(())
}
