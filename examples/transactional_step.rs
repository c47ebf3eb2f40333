//! A transactional step on SQLite: its own rows and the fact that it is done are stored together, or neither. The bank's table lies in the file of the store.
//!
//! `cargo run --example transactional_step`

use std::time::Duration;

use anyhow::{Result, ensure};
use latchwork::prelude::*;
use latchwork_sqlite_client::{SqliteClient, SqliteOptions, SqliteTransaction, sqlx};

#[derive(Clone, Serialize, Deserialize)]
struct Transfer {
    from: String,
    to: String,
    cents: i64,
    told: bool,
}

struct Pay;

impl Workflow for Pay {
    type Data = Transfer;
    const ID: &'static str = "pay";

    fn build(&self, flow: &mut WorkflowBuilder<Transfer>) {
        flow.run("book", book).transactional().on_error(Retry::fixed(Duration::from_millis(10)).max_attempts(3));
        flow.wait_for("booked", |transfer| transfer.to.clone()).output(|(), transfer| transfer.told = true);
    }
}

async fn book(transfer: &Transfer, cx: &StepContext) -> StepResult<()> {
    let mut transaction = cx.transaction().await?;
    let sql: &mut SqliteTransaction = transaction.of()?;
    insert(sql, &transfer.from, -transfer.cents).await?;
    // The first try dies between its two rows, as a process may. The first row is taken back.
    if cx.attempt() == 1 {
        return Err("the power went out".into());
    }
    insert(sql, &transfer.to, transfer.cents).await?;
    // Stored with them, once.
    cx.publish_event("booked", &transfer.to, ())?;
    Ok(())
}

async fn insert(sql: &mut SqliteTransaction, account: &str, cents: i64) -> Result<(), sqlx::Error> {
    let statement = "INSERT INTO booking (account, cents) VALUES (?, ?)";
    sqlx::query(statement).bind(account).bind(cents).execute(&mut **sql).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bank.db").to_string_lossy().into_owned();
    let bank = SqliteClient::open(SqliteOptions::new(&file)).await?;
    let mut begun = bank.begin().await?;
    sqlx::query("CREATE TABLE booking (account TEXT NOT NULL, cents INTEGER NOT NULL)").execute(&mut *begun).await?;
    begun.commit().await?;

    let host =
        WorkflowHost::builder().use_local_locking().use_local_queue().use_sqlite_persistence(&file).workflow(Pay).start().await?;
    let transfer = Transfer { from: "ada".to_owned(), to: "bob".to_owned(), cents: 500, told: false };
    let transfer = host.start_workflow::<Pay>(transfer).await?;
    ensure!(transfer.completion().timeout(Duration::from_secs(30)).await?.told);
    ensure!(transfer.errors().await?.len() == 1, "one try failed");

    let mut reader = bank.reader().await?;
    let query = "SELECT account, cents FROM booking ORDER BY account";
    let booked: Vec<(String, i64)> = sqlx::query_as(query).fetch_all(&mut *reader).await?;
    drop(reader);
    println!("{booked:?}");
    ensure!(booked == [("ada".to_owned(), -500), ("bob".to_owned(), 500)], "both rows, once each");
    host.stop().await?;
    Ok(())
}
