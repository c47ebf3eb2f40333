//! Steps whose own SQL is stored together with their checkpoint: both, or neither.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;

use common::*;
use latchwork::core::store::StoreErrorKind;
use latchwork_sqlite_client::{SqliteClient, SqliteOptions, SqliteTransaction, sqlx};

workflow!(Books, |flow| {
    flow.run("before", async |_, cx| step(cx).await);
    flow.run("book", async |data, cx| {
        book(cx, data.n).await?;
        step(cx).await
    })
    .transactional()
    .on_error(Retry::fixed(Duration::from_secs(1)).max_attempts(3))
    .output(|(), data| data.log.push("booked".into()));
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(BooksAndPublishes, |flow| {
    flow.run("book", async |data, cx| {
        book(cx, data.n).await?;
        cx.publish_event("booked", "k", data.n)?;
        step(cx).await
    })
    .transactional();
    flow.wait_for("booked", |_| "k".to_owned());
});

workflow!(BooksBesideOthers, |flow| {
    flow.parallel("both", |both| {
        both.branch("books", |b| {
            b.run("book", async |data, cx| {
                book(cx, data.n).await?;
                step(cx).await
            })
            .transactional();
        });
        both.branch("others", |b| {
            b.run("other", async |_, cx| step(cx).await);
            b.run("another", async |_, cx| step(cx).await);
        });
    });
});

workflow!(NotTransactional, |flow| {
    flow.run("book", async |_, cx| cx.transaction().await.map(|_| ())).on_error(Retry::never());
});

/// Writes a row of the business in the step's transaction.
async fn book(cx: &StepContext, amount: i64) -> StepResult<()> {
    let mut transaction = cx.transaction().await?;
    let sql = transaction.of::<SqliteTransaction>()?;
    sqlx::query("INSERT INTO booking (key, amount) VALUES (?, ?)")
        .bind(cx.idempotency_key())
        .bind(amount)
        .execute(&mut **sql)
        .await?;
    Ok(())
}

/// The business's own table, in the file of the store.
struct Business(SqliteClient);

impl Business {
    async fn beside(world: &World) -> Self {
        let client = SqliteClient::open(SqliteOptions::new(world.file().expect("a file"))).await.expect("opened");
        let mut begun = client.begin().await.expect("begun");
        sqlx::query("CREATE TABLE booking (key TEXT NOT NULL, amount INTEGER NOT NULL)")
            .execute(&mut *begun)
            .await
            .expect("made");
        begun.commit().await.expect("committed");
        Self(client)
    }

    async fn bookings(&self) -> Vec<i64> {
        let mut reader = self.0.reader().await.expect("a reader");
        sqlx::query_scalar("SELECT amount FROM booking ORDER BY rowid").fetch_all(&mut *reader).await.expect("read")
    }
}

#[tokio::test]
async fn a_transactional_step_writes_its_row_and_its_completion_together() {
    let world = World::sqlite().await;
    let business = Business::beside(&world).await;
    let gate = world.probe.hold("book");
    let node = world.run(Books).await;
    let handle = node.begin::<Books>(Data::n(7)).await;
    world.soon(gate.reached(1)).await;
    assert_eq!(business.bookings().await, [0_i64; 0], "written, and not committed");
    gate.open();
    assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["booked"]);
    assert_eq!(business.bookings().await, [7]);
    node.stop_clean().await;
}

#[tokio::test]
async fn a_failed_try_takes_its_row_back() {
    let world = World::sqlite().await;
    let business = Business::beside(&world).await;
    world.probe.fail("book", 2);
    let node = world.run(Books).await;
    let handle = node.begin::<Books>(Data::n(7)).await;
    world.fly(handle.completion()).await.expect("done");
    assert_eq!((world.probe.runs("book"), business.bookings().await), (3, vec![7]));
    node.stop_clean().await;
}

#[tokio::test]
async fn a_crash_at_any_point_leaves_both_or_neither() {
    // The node dies while the body runs, and when its checkpoint is about to be committed.
    for dies_at_the_commit in [false, true] {
        let world = World::sqlite().await;
        let business = Business::beside(&world).await;
        let gate = world.probe.hold("book");
        let first = world.run(Books).await;
        let id = first.begin::<Books>(Data::n(7)).await.id().clone();
        world.soon(gate.reached(1)).await;
        if dies_at_the_commit {
            first.means.losses.lose_silently("");
        }
        world.kill(first);
        gate.open();
        let second = world.run(Books).await;
        world.fly(second.workflow_instance::<Books>(id).completion()).await.expect("done");
        assert_eq!(business.bookings().await, [7], "died at the commit: {dies_at_the_commit}");
        assert_eq!(world.probe.runs("before"), 1);
        second.stop_clean().await;
    }
}

#[tokio::test]
async fn an_owner_that_was_overtaken_writes_neither() {
    let world = World::sqlite().await;
    let business = Business::beside(&world).await;
    let first = world.run(Books).await;
    let begins = first.means.store.on(StoreCall::Begin).hold();
    let id = first.begin::<Books>(Data::n(7)).await.id().clone();
    world.soon(begins.reached(1)).await;
    // Another node takes the lock over just before the first one's transaction begins.
    first.means.losses.lose_silently("");
    let second = world.run(Books).await;
    world.fly(second.workflow_instance::<Books>(id).completion()).await.expect("done");
    begins.open();
    world.soon_until(async || world.probe.runs("book") == 2).await;
    world.quiet().await;
    assert_eq!(business.bookings().await, [7], "of two bodies that wrote, one was committed");
    drop(first);
    second.stop_clean().await;
}

#[tokio::test]
async fn what_a_transactional_step_publishes_is_stored_with_it() {
    let world = World::sqlite().await;
    let business = Business::beside(&world).await;
    let node = world.run(BooksAndPublishes).await;
    let handle = node.begin::<BooksAndPublishes>(Data::n(7)).await;
    world.soon(handle.completion()).await.expect("done");
    assert_eq!((business.bookings().await, node.statistics().await.expect("counted").events), (vec![7], 1));
    node.stop_clean().await;
}

#[tokio::test]
async fn branches_beside_a_transactional_step_wait_with_their_checkpoints_until_it_ends() {
    let world = World::sqlite().await;
    let business = Business::beside(&world).await;
    let gate = world.probe.hold("book");
    let node = world.run(BooksBesideOthers).await;
    let handle = node.begin::<BooksBesideOthers>(Data::n(7)).await;
    world.soon(gate.reached(1)).await;
    world.soon_until(async || world.probe.ended("other") == 1).await;
    world.rest().await;
    assert_eq!(world.probe.runs("another"), 0, "what comes next needs a checkpoint");
    gate.open();
    world.soon(handle.completion()).await.expect("done");
    assert_eq!((business.bookings().await, world.probe.runs("another")), (vec![7], 1));
    node.stop_clean().await;
}

#[tokio::test]
async fn a_transaction_that_stays_open_too_long_is_rolled_back_and_the_step_has_failed() {
    let world = World::sqlite().await;
    let business = Business::beside(&world).await;
    let gate = world.probe.hold("book");
    let node = world.run(Books).await;
    let handle = node.begin::<Books>(Data::n(7)).await;
    world.soon(gate.reached(1)).await;
    world.clock.advance(Duration::from_secs(6));
    world.soon_until(async || !handle.all_errors().await.is_empty()).await;
    let errors = handle.all_errors().await;
    assert!(errors[0].message.contains("longer than 5s (option `transaction_limit`)"), "{errors:?}");
    gate.open();
    world.fly(handle.completion()).await.expect("done");
    assert_eq!(business.bookings().await, [7]);
    node.stop_clean().await;
}

#[tokio::test]
async fn the_store_that_refuses_the_checkpoint_refuses_the_row() {
    let world = World::sqlite().await;
    let business = Business::beside(&world).await;
    let node = world.run(Books).await;
    node.means.store.on(StoreCall::Begin).times(2).fail(StoreErrorKind::Unavailable);
    let handle = node.begin::<Books>(Data::n(7)).await;
    world.fly(handle.completion()).await.expect("done");
    assert_eq!(business.bookings().await, [7]);
    assert_eq!(world.probe.runs("book"), 1, "a body does not run without its transaction");
    node.stop_clean().await;
}

#[tokio::test]
async fn a_step_that_did_not_say_so_gets_no_transaction_and_a_store_without_them_is_refused() {
    let world = World::sqlite().await;
    let node = world.run(NotTransactional).await;
    let handle = node.begin::<NotTransactional>(Data::default()).await;
    world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
    assert!(handle.reason().await.contains("`.transactional()`"), "{}", handle.reason().await);
    node.stop_clean().await;

    let memory = World::memory();
    let refused = memory.node().with(|b| b.workflow(Books)).try_start().await.err().expect("refused").to_string();
    assert!(refused.contains("step `book` is transactional"), "{refused}");
}
