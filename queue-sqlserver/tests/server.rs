//! What is the SQL Server queue's own: its table, its statements, its pauses, its wiring. On the server that
//! `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod place;

use latchwork_core::{
    Scope,
    options::WorkflowOptions,
    queue::{Delivery, QueueError, QueueProvider, Redelivery},
    store::SchemaMode,
};
use latchwork_queue_sqlserver::{SqlServerQueue, SqlServerQueueOptions, UseSqlServerQueue, migrations};
use place::{LONG, Place, QUEUE, hints};
use std::{collections::HashSet, error::Error, time::Duration};
use tokio::task::JoinSet;

const ROWS: &str = "SELECT COUNT_BIG(*) FROM [latchwork].[queue];";

fn sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// Adds so many hints that wait, by one statement, due a while ago.
async fn fill(place: &Place, digits: u32) {
    let ten = "(VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))";
    let joins: String = (1..digits).map(|n| format!(" CROSS JOIN {ten} AS v{n}(n)")).collect();
    place
        .ask(&format!(
            "INSERT INTO [latchwork].[queue] ([queue], [instance], [definition], [version], [due], [position], [failures], [again])
            SELECT 'workflow', LOWER(CAST(NEWID() AS char(36))), N'order', 1, 1, ROW_NUMBER() OVER (ORDER BY v0.n), 0, 0
            FROM {ten} AS v0(n){joins};"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k16_the_table_does_not_grow_with_the_hints_that_went_through_it() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options()).await;
    for _ in 0..5 {
        queue.enqueue(QUEUE, &hints(2_000)).await.expect("queued");
        assert_eq!(place.number(ROWS).await, 2_000);
        let mut settlements = JoinSet::new();
        while settlements.len() < 2_000 {
            let taken = queue.dequeue(QUEUE, 2_000, LONG).await.expect("dequeued");
            settlements.extend(taken.into_iter().map(|delivery| async { delivery.ack().await.expect("settled") }));
        }
        settlements.join_all().await;
        assert_eq!(place.number(ROWS).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k12_what_waits_already_is_not_written_again() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options()).await;
    let items = hints(100);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let written = "SELECT MAX([due]) FROM [latchwork].[queue];";
    let before = place.number(written).await;
    queue.enqueue(QUEUE, &[items.as_slice(), items.as_slice()].concat()).await.expect("queued again");
    assert_eq!((place.number(ROWS).await, place.number(written).await), (100, before));
}

#[tokio::test(flavor = "multi_thread")]
async fn k52_a_stale_claim_neither_renews_nor_settles_what_another_has_in_hand() {
    let Some(place) = Place::new() else { return };
    let lease = Duration::from_millis(300);
    let queue = place.open(place.options().with_lease(lease)).await;
    let other = place.open(place.options().with_lease(Duration::from_secs(60))).await;
    queue.enqueue(QUEUE, &hints(1)).await.expect("queued");
    let stale = queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued").pop().expect("the hint");
    // The server says that the lease is over, whatever its holder thinks, who goes on renewing.
    let current = loop {
        place.ask("UPDATE [latchwork].[queue] SET [due] = 1;").await;
        if let Some(current) = other.dequeue(QUEUE, 1, Duration::ZERO).await.expect("dequeued").pop() {
            break current;
        }
    };
    assert_eq!(current.attempt(), 2);
    let end = "SELECT [due] FROM [latchwork].[queue];";
    let ends = place.number(end).await;
    tokio::time::sleep(lease * 2).await; // several rounds of the stale holder's renewals
    assert_eq!(place.number(end).await, ends, "only the holder renews");
    stale.ack().await.expect("stale, and harmless");
    assert_eq!(place.number(ROWS).await, 1);
    current.ack().await.expect("settled");
    assert_eq!(place.number(ROWS).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn k55_leases_and_delays_are_the_servers() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options().with_lease(Duration::from_secs(60))).await;
    queue.enqueue(QUEUE, &hints(2)).await.expect("queued");
    let mut taken = queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    taken.pop().expect("two").nack(Duration::from_secs(600)).await.expect("nacked");
    let left =
        "SELECT [due] / 1000000 - DATEDIFF_BIG(second, '19700101', SYSUTCDATETIME()) FROM [latchwork].[queue] WHERE [claim] ";
    let (delay, lease) = (place.number(&format!("{left} IS NULL;")).await, place.number(&format!("{left} IS NOT NULL;")).await);
    assert!((500..=601).contains(&delay) && (20..=61).contains(&lease), "{delay} s and {lease} s are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_consumers_that_claim_at_once_each_gets_hints_of_its_own() {
    let Some(place) = Place::new() else { return };
    let mut queues = Vec::new();
    for _ in 0..3 {
        // Leases that no pause of a busy machine outlasts.
        queues.push(place.open(place.options().with_lease(Duration::from_secs(600))).await);
    }
    let items = hints(600);
    queues[0].enqueue(QUEUE, &items).await.expect("queued");
    let total = items.len();
    let mut consumers = JoinSet::new();
    for queue in queues {
        consumers.spawn(async move {
            let mut held: Vec<Delivery> = Vec::new();
            let mut empty = 0;
            // A claim that meets another one comes back with less, or nothing; three seconds without a hint are the end.
            while empty < 3 && held.len() < total {
                let taken = queue.dequeue(QUEUE, 7, Duration::from_secs(1)).await.expect("dequeued");
                empty = if taken.is_empty() { empty + 1 } else { 0 };
                held.extend(taken);
            }
            let came: Vec<_> = held.iter().map(|delivery| (delivery.item().clone(), delivery.attempt())).collect();
            (queue, held, came)
        });
    }
    let ended = consumers.join_all().await;
    let came: Vec<_> = ended.iter().flat_map(|(_, _, came)| came.clone()).collect();
    assert!(came.iter().all(|(_, attempt)| *attempt == 1));
    let distinct: HashSet<_> = came.iter().map(|(item, _)| item.clone()).collect();
    assert_eq!((came.len(), distinct), (total, items.into_iter().collect()));
    for (queue, held, _) in ended {
        drop(held);
        queue.stop(LONG).await.expect("stopped");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn enqueues_of_one_instance_at_the_same_moment_leave_one_row_and_no_error() {
    let Some(place) = Place::new() else { return };
    let queues = [place.open(place.options()).await, place.open(place.options()).await, place.open(place.options()).await];
    for item in hints(20) {
        let items = std::slice::from_ref(&item);
        let [one, two, three] = &queues;
        let queued = tokio::join!(one.enqueue(QUEUE, items), two.enqueue(QUEUE, items), three.enqueue(QUEUE, items));
        assert!(queued.0.is_ok() && queued.1.is_ok() && queued.2.is_ok(), "{queued:?}");
    }
    assert_eq!(place.number(ROWS).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_thousand_waiting_hints_change_nothing_of_how_the_next_is_found() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options()).await;
    for _ in 0..5 {
        fill(&place, 4).await;
    }
    assert_eq!(place.number(ROWS).await, 50_000);
    let stand_in = place.is_a_stand_in().await;
    let mut session = place.session().await;
    let profile = if stand_in { "SET BABELFISH_STATISTICS PROFILE ON;" } else { "SET STATISTICS PROFILE ON;" };
    session.batch(profile, LONG).await.expect("set");
    let schema = format!("[latchwork_{}]", place.namespace.as_str());
    let claim = include_str!("../src/statements/claim.sql").replace("[latchwork]", &schema);
    let parameters = "DECLARE @P1 varchar(20) = 'workflow', @P2 bigint = 10, @P3 bigint = 60000000, @P4 nvarchar(100) = N'me', @P5 bigint = 1;\n";
    let results = session.batch(&format!("{parameters}{claim}"), LONG).await.expect("claimed");
    let cells = results.iter().flatten().flat_map(|row| {
        let texts = row.cells().filter(|(column, _)| ["StmtText", "QUERY PLAN"].contains(&column.name()));
        texts.filter_map(|(_, cell)| match cell {
            latchwork_sqlserver_client::driver::ColumnData::String(Some(text)) => Some(text.to_string()),
            _ => None,
        })
    });
    let plan = cells.collect::<Vec<_>>().join("\n");
    // Both look-ups go by the index of what is due, the write by the key; nothing walks the table.
    let by_due = if stand_in { "using queue_due" } else { "[queue_due]" };
    assert!(plan.matches(by_due).count() >= 2, "{plan}");
    let walk = if stand_in { "Seq Scan on queue" } else { "Clustered Index Scan" };
    assert!(!plan.contains(walk), "{plan}");
    // And they are handed out in order.
    let taken = queue.dequeue(QUEUE, 5, LONG).await.expect("dequeued");
    assert_eq!(taken.len(), 5);
    let left = "SELECT MIN([position]) FROM [latchwork].[queue] WHERE [claim] IS NULL;";
    assert!(place.number(left).await <= 4, "15 of five times the first three places are taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_a_process_looks_for_all_that_wait_and_an_enqueue_wakes_them() {
    let Some(place) = Place::new() else { return };
    // So long a pause that without a ring nothing is found in time, and so many consumers that each looking alone would show.
    let pause = Duration::from_secs(5);
    let queue = std::sync::Arc::new(place.open(place.options().with_idle_wait(pause, pause)).await);
    let other = place.open(place.options().with_idle_wait(pause, pause)).await;
    let mut consumers = JoinSet::new();
    for _ in 0..20 {
        let queue = queue.clone();
        consumers.spawn(async move { queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued") });
    }
    let start = tokio::time::Instant::now();
    let items = hints(20);
    other.enqueue(QUEUE, &items).await.expect("queued");
    let mut claims = HashSet::new();
    let mut held = Vec::new();
    while let Some(taken) = consumers.join_next().await {
        held.extend(taken.expect("ended"));
    }
    assert_eq!(held.len(), 20, "after {:?}", start.elapsed());
    for row in place.ask("SELECT [claim] FROM [latchwork].[queue];").await {
        claims.insert(row.get::<i64, _>(0).expect("in hand"));
    }
    assert!(claims.len() <= 3, "20 consumers were served by {} requests", claims.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_node_looks_no_more_often_than_its_pauses_say() {
    let Some(place) = Place::new() else { return };
    let pause = Duration::from_secs(5);
    let queue = place.open(place.options().with_idle_wait(pause, pause)).await;
    // The first dequeue looks once, at its end at the latest.
    assert!(queue.dequeue(QUEUE, 1, Duration::ZERO).await.expect("dequeued").is_empty());
    // What another process adds (nobody rings) is found at the end of a pause or of the wait, whichever is first.
    fill(&place, 1).await;
    let start = tokio::time::Instant::now();
    let taken = queue.dequeue(QUEUE, 1, Duration::from_millis(300)).await.expect("dequeued");
    assert!(taken.len() == 1 && start.elapsed() >= Duration::from_millis(250), "{} after {:?}", taken.len(), start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_outlives_its_queue_is_settled() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options().with_lease(Duration::from_secs(600))).await;
    let other = place.open(place.options().with_lease(Duration::from_secs(600))).await;
    queue.enqueue(QUEUE, &hints(2)).await.expect("queued");
    let mut taken = queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    drop(queue);
    taken.pop().expect("two").ack().await.expect("settled");
    drop(taken);
    let again = other.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    assert_eq!(again.iter().map(Delivery::attempt).collect::<Vec<_>>(), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_made_only_where_that_is_allowed_and_by_the_script_as_well() {
    let Some(place) = Place::new() else { return };
    let verify = || place.context().with_schema(SchemaMode::Verify);
    let refused = SqlServerQueue::open(place.options(), &verify()).await.expect_err("there is no schema");
    let text = sources(&*refused);
    assert!(text.contains(place.namespace.as_str()) && text.contains("Verify"), "{text}");
    assert!(matches!(refused.downcast_ref::<QueueError>(), Some(error) if !error.is_retryable()));

    let script = migrations(&place.namespace).script(0);
    let mut session = place.session().await;
    for batch in script.split("\nGO\n").filter(|batch| !batch.trim().is_empty()) {
        session.batch(batch, LONG).await.unwrap_or_else(|error| panic!("{error}\n{batch}"));
    }
    let queue = SqlServerQueue::open(place.options(), &verify()).await.expect("a DBA made it");
    queue.enqueue(QUEUE, &hints(1)).await.expect("queued");
    assert_eq!(queue.depth(QUEUE).await.expect("counted").waiting, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_wired_by_one_line_and_tells_what_it_has() {
    let Some(place) = Place::new() else { return };
    let mut wired = WorkflowOptions::default();
    wired.namespace = place.namespace.clone();
    (&mut wired).use_sqlserver_queue(place.connection_string.as_str());
    let context = wired.provider_context();
    let queue = wired.open_queue(&context).await.expect("wired").expect("opened");
    let capabilities = queue.capabilities();
    assert!(capabilities.domain.starts_with("sqlserver:") && capabilities.scope == Scope::Cluster, "{capabilities:?}");
    assert_eq!(capabilities.redelivery, Redelivery::Lease(Duration::from_secs(10)));
    assert!(capabilities.durable && capabilities.native_delay && !capabilities.push);
    queue.stop(LONG).await.expect("stopped");
}

#[tokio::test]
async fn nothing_that_is_shown_holds_the_connection_string() {
    let text = "Server=127.0.0.1,1;Database=orders;User Id=app;Password=very-secret;TrustServerCertificate=true";
    let options = SqlServerQueueOptions::new(text).with_connect_timeout(Duration::from_secs(5));
    assert!(!format!("{options:?}").contains("very-secret"));
    let context = latchwork_core::options::ProviderContext::new(latchwork_core::name::Namespace::default(), "node");
    let unreachable = SqlServerQueue::open(options, &context).await.expect_err("nobody listens there");
    let told = format!("{} {unreachable:?}", sources(&*unreachable));
    assert!(told.contains("127.0.0.1") && !told.contains("very-secret") && !told.contains("app;"), "{told}");
    assert!(matches!(unreachable.downcast_ref::<QueueError>(), Some(error) if error.is_retryable()));
    let refused = SqlServerQueue::connect("Server=a;Password=very-secret;='", &context).await.expect_err("no connection string");
    assert!(!format!("{} {refused:?}", sources(&*refused)).contains("very-secret"));
}
