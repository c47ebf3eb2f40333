//! A workflow in a few lines, on the embedded default: local locks, a local queue, and a store that is one SQLite file.
//!
//! `cargo run --example hello`

use std::time::Duration;

use anyhow::Result;
use latchwork::prelude::*;

#[derive(Clone, Serialize, Deserialize)]
struct Visit {
    guest: String,
    greeting: String,
}

struct Greet;

impl Workflow for Greet {
    type Data = Visit;
    const ID: &'static str = "greet";

    fn build(&self, flow: &mut WorkflowBuilder<Visit>) {
        flow.run("greet", async |visit, _cx| Ok(format!("Hello, {}!", visit.guest)))
            .output(|greeting, visit| visit.greeting = greeting);
        flow.delay("think", Duration::from_millis(100));
        flow.when(
            "a friend?",
            |visit| visit.guest == "Ada",
            |friend| {
                friend
                    .run("ask", async |_visit, _cx| Ok(" How is the engine?"))
                    .output(|question, visit| visit.greeting += question);
            },
        );
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let file = std::env::temp_dir().join("latchwork-hello.db");
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_sqlite_persistence(file.to_string_lossy())
        .workflow(Greet)
        .start()
        .await?;
    let visit = host.start_workflow::<Greet>(Visit { guest: "Ada".to_owned(), greeting: String::new() }).await?;
    println!("{}", visit.completion().timeout(Duration::from_secs(10)).await?.greeting);
    host.stop().await?;
    Ok(())
}
