//! What goes wrong between a store and its server, and who prepares the schema, on the server that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use latchwork_core::{
    BoxError,
    options::ProviderContext,
    store::{
        Checkpoint, CheckpointId, CheckpointOutcome, Control, CreateOutcome, Due, Encoded, ErrorRecord, HeaderUpdate,
        InboxMessage, InstanceId, NewEvent, NewInstance, PersistenceProvider, PointerId, PurgeRequest, Revision, RunnableQuery,
        SchemaMode, StoreErrorKind, Subscription, SubscriptionId, WorkflowStatus, stored,
    },
};
use latchwork_persistence_sqlserver::{SqlServerStore, roles_script, schema_script};
use latchwork_sqlserver_client::SqlServerOptions;
use latchwork_testkit::{
    proxy::{Cut, Proxy, Way},
    store::Skipped,
};
use std::{sync::Arc, time::Duration};
use support::{Database, LIMIT};

/// Runs a test in a schema of its own, when a server is named.
async fn on_a_server<F: Future<Output = Result<(), BoxError>>>(test: impl FnOnce(Database) -> F) -> Result<(), BoxError> {
    let database = match Database::for_a_store().await {
        Ok(database) => database,
        Err(error) if error.is::<Skipped>() => {
            println!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let result = test(database.clone()).await;
    database.remove().await?;
    result
}

fn order() -> NewInstance {
    NewInstance::new("order", 1, "shape", Encoded::from_json("{}"))
}

fn checkpoint(instance: &InstanceId, number: u64) -> Checkpoint {
    let header = HeaderUpdate { status: WorkflowStatus::Runnable, reason: None, due: Due::Never, fault_count: 0 };
    let id = CheckpointId { burst: 7, number };
    Checkpoint::new(instance.clone(), id, Revision(i64::try_from(number).expect("small")), header)
}

async fn create(store: &SqlServerStore, count: usize) -> Result<Vec<InstanceId>, BoxError> {
    let new: Vec<_> = (0..count).map(|_| order()).collect();
    assert_eq!(store.create(&new).await?, vec![CreateOutcome::Created; count]);
    Ok(new.into_iter().map(|instance| instance.id).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_nodes_that_start_at_once_make_the_schema_once() -> Result<(), BoxError> {
    on_a_server(async |database| {
        let nodes = futures_util::future::try_join_all((0..10).map(|number| {
            let database = database.clone();
            async move {
                let store = database.store(&format!("node {number}")).await?;
                store.prepare(SchemaMode::Migrate).await?;
                Ok::<_, BoxError>(store)
            }
        }))
        .await?;
        assert_eq!(database.count("SELECT COUNT_BIG(*) FROM [latchwork].[migration];").await?, 1);
        assert_eq!(database.count("SELECT COUNT_BIG(*) FROM [latchwork].[stripe];").await?, i64::from(stored::STRIPES));
        for store in nodes {
            store.stop(LIMIT).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_only_verifies_needs_the_script_of_the_dba() -> Result<(), BoxError> {
    on_a_server(async |database| {
        let store = database.store("node").await?;
        let error = store.prepare(SchemaMode::Verify).await.expect_err("refused");
        assert_eq!(error.kind, StoreErrorKind::Schema, "{error}");
        let error = store.load(&InstanceId::new()).await.expect_err("no tables");
        assert!(!error.to_string().is_empty());
        let mut session = database.session().await?;
        for batch in schema_script(&database.namespace, 0).split("\nGO\n").filter(|batch| !batch.trim().is_empty()) {
            session.batch(batch, LIMIT).await?;
        }
        store.prepare(SchemaMode::Verify).await?;
        store.prepare(SchemaMode::CreateIfMissing).await?;
        let ids = create(&store, 1).await?;
        let reported =
            database.count("SELECT COUNT_BIG(*) FROM [latchwork].[instances_report] WHERE [created_utc] > '2020-01-01';");
        assert_eq!(reported.await?, 1);
        assert!(store.load(&ids[0]).await?.is_some());
        store.stop(LIMIT).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_connection_is_cut_at_its_commit_is_written_once() -> Result<(), BoxError> {
    on_a_server(async |database| {
        let server = SqlServerOptions::new(database.connection_string.as_str()).server();
        let (host, port) = server.split_once(',').unwrap_or((&server, "1433"));
        let proxy = Proxy::start(format!("{host}:{port}")).await?;
        let through = Database {
            connection_string: format!("{};Server=tcp:127.0.0.1,{}", database.connection_string, proxy.address().port()),
            ..database.clone()
        };
        let store = SqlServerStore::open(&through.options(), &ProviderContext::new(database.namespace.clone(), "cut")).await?;
        store.prepare(SchemaMode::Migrate).await?;
        let ids = create(&store, 100).await?;
        // Cut when the server has answered, so that it has committed; then before it has heard of it.
        for (number, way) in [(1, Way::Answers), (2, Way::Requests)] {
            let error = |id: &InstanceId| ErrorRecord {
                instance: id.clone(),
                pointer: PointerId::from_u128(1),
                step: "step".into(),
                attempt: 1,
                time: latchwork_core::clock::Timestamp::UNIX_EPOCH,
                message: "kept once".to_owned(),
            };
            let group = ids.iter().map(|id| {
                let mut checkpoint = checkpoint(id, number);
                checkpoint.errors = vec![error(id)];
                Arc::new(checkpoint)
            });
            proxy.hold(way);
            let cut = async {
                proxy.until_held(way).await;
                // What is on its way arrives, unless it is held.
                tokio::time::sleep(Duration::from_millis(200)).await;
                proxy.cut(Cut::Reset).await;
                proxy.carry_on();
            };
            let (answers, ()) = tokio::join!(store.commit(group.collect()), cut);
            for answer in answers {
                let CheckpointOutcome::Committed(committed) = answer else { panic!("{way:?}: {answer:?}") };
                assert_eq!(committed.revision, Revision(i64::try_from(number)? + 1));
            }
            let kept = database.count("SELECT COUNT_BIG(*) FROM [latchwork].[error];").await?;
            assert_eq!(kept, 100 * i64::try_from(number)?, "{way:?}: each is written once");
        }
        store.stop(LIMIT).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_value_does_not_fail_its_neighbours() -> Result<(), BoxError> {
    on_a_server(async |database| {
        let store = database.store("node").await?;
        store.prepare(SchemaMode::Migrate).await?;
        let ids = create(&store, 20).await?;
        let group = ids.iter().enumerate().map(|(at, id)| {
            let mut checkpoint = checkpoint(id, 1);
            // Longer than its column.
            let slot = if at == 7 { "s".repeat(401) } else { "s".to_owned() };
            let (wait, pointer) = (SubscriptionId::from_u128(1), PointerId::from_u128(1));
            checkpoint.subscriptions =
                vec![Subscription::new(wait, pointer, "packed", "A-1", slot, latchwork_core::clock::Timestamp::UNIX_EPOCH, 1)];
            Arc::new(checkpoint)
        });
        for (at, answer) in store.commit(group.collect()).await.into_iter().enumerate() {
            match answer {
                CheckpointOutcome::Committed(_) => assert_ne!(at, 7),
                CheckpointOutcome::Failed(error) => {
                    assert_eq!((at, error.kind, error.is_retryable()), (7, StoreErrorKind::Invalid, false), "{error}");
                }
                CheckpointOutcome::Refused { .. } => panic!("{at} was refused"),
            }
        }
        store.stop(LIMIT).await?;
        Ok(())
    })
    .await
}

/// A publisher between its insert and its commit: the wait that is committed meanwhile must see the event.
#[tokio::test(flavor = "multi_thread")]
async fn k18_a_wait_beside_a_publisher_that_is_held_sees_its_event() -> Result<(), BoxError> {
    on_a_server(async |database| {
        let store = database.store("node").await?;
        store.prepare(SchemaMode::Migrate).await?;
        let ids = create(&store, 1).await?;
        let event = NewEvent::new("packed", "A-1");
        let mut publisher = database.session().await?;
        let held = format!(
            "SET XACT_ABORT ON; BEGIN TRANSACTION;
            UPDATE [latchwork].[stripe] SET [turn] = [turn] + 1 WHERE [number] = {stripe};
            INSERT INTO [latchwork].[event] ([id], [name], [key], [stripe], [time]) VALUES ('{id}', N'packed', N'A-1', {stripe}, 5);",
            stripe = stored::stripe("packed", "A-1"),
            id = event.id,
        );
        publisher.batch(&database.schema.apply(&held), LIMIT).await?;
        let mut waiting = checkpoint(&ids[0], 1);
        let (wait, pointer) = (SubscriptionId::from_u128(1), PointerId::from_u128(1));
        let as_of = latchwork_core::clock::Timestamp::UNIX_EPOCH;
        waiting.subscriptions = vec![Subscription::new(wait, pointer, "packed", "A-1", "s", as_of, 1)];
        let commit = store.commit(vec![Arc::new(waiting)]);
        tokio::pin!(commit);
        // Long enough for a wait that is not held to be through; one that is held is, however long this is.
        let early = tokio::time::timeout(Duration::from_secs(3), &mut commit).await;
        assert!(early.is_err(), "a wait is not committed beside a publisher of its channel: {early:?}");
        publisher.batch("COMMIT TRANSACTION;", LIMIT).await?;
        let answer = commit.await.pop().expect("an answer");
        let CheckpointOutcome::Committed(committed) = answer else { panic!("{answer:?}") };
        let seen: Vec<_> = committed.inbox.into_iter().map(|row| row.message).collect();
        assert!(matches!(&seen[..], [InboxMessage::Event { event: id, .. }] if *id == event.id), "{seen:?}");
        store.stop(LIMIT).await?;
        Ok(())
    })
    .await
}

/// What the roles of the script can do, as log-ins of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_least_privilege_does_all_and_a_reader_reads_the_report_only() -> Result<(), BoxError> {
    on_a_server(async |database| {
        let owner = database.store("owner").await?;
        owner.prepare(SchemaMode::Migrate).await?;
        let schema = &database.schema;
        let mut session = database.session().await?;
        for batch in roles_script(&database.namespace).split("\nGO\n").filter(|batch| !batch.trim().is_empty()) {
            session.batch(batch, LIMIT).await?;
        }
        let (host, reader) = (format!("{schema}_host_login"), format!("{schema}_reader_login"));
        for (login, role) in [(&host, "host"), (&reader, "reader")] {
            for statement in [
                format!("CREATE LOGIN [{login}] WITH PASSWORD = 'Str0ng-{schema}';"),
                format!("CREATE USER [{login}] FOR LOGIN [{login}];"),
                format!("ALTER ROLE [{schema}_{role}] ADD MEMBER [{login}];"),
            ] {
                session.batch(&statement, LIMIT).await?;
            }
        }
        // The last of a key counts.
        let by = |login: &str| Database {
            connection_string: format!("{};User Id={login};Password=Str0ng-{schema}", database.connection_string),
            ..database.clone()
        };
        let tried = as_host_and_reader(&by(&host), &by(&reader)).await;
        owner.stop(LIMIT).await?;
        for statement in [
            format!("DROP USER [{host}];"),
            format!("DROP USER [{reader}];"),
            format!("DROP LOGIN [{host}];"),
            format!("DROP LOGIN [{reader}];"),
        ] {
            session.batch(&statement, LIMIT).await?;
        }
        database.remove().await?;
        for role in ["host", "reader"] {
            session.batch(&format!("DROP ROLE [{schema}_{role}];"), LIMIT).await?;
        }
        tried
    })
    .await
}

async fn as_host_and_reader(host: &Database, reader: &Database) -> Result<(), BoxError> {
    let store = host.store("host").await?;
    store.prepare(SchemaMode::Verify).await?;
    let ids = create(&store, 2).await?;
    let mut ended = checkpoint(&ids[0], 1);
    ended.header.status = WorkflowStatus::Complete;
    ended.events = vec![NewEvent::new("packed", "A-1")];
    ended.messages = vec![(ids[1].clone(), Control::Resume)];
    let answer = store.commit(vec![Arc::new(ended)]).await.pop().expect("an answer");
    assert!(matches!(answer, CheckpointOutcome::Committed(_)), "{answer:?}");
    assert_eq!(store.purge(&PurgeRequest::new().with_instances(Duration::ZERO)).await?.instances, 1);
    store.stop(LIMIT).await?;
    assert!(host.run("CREATE TABLE [latchwork].[more] ([i] int NOT NULL);").await.is_err(), "a host changes no tables");
    assert_eq!(reader.count("SELECT COUNT_BIG(*) FROM [latchwork].[instances_report];").await?, 1);
    assert!(reader.count("SELECT COUNT_BIG(*) FROM [latchwork].[instance];").await.is_err(), "a reader reads the report only");
    Ok(())
}

/// Checkpoints that send to each other's instances, publishers, pollers and purges on three nodes: each is answered, none fails.
#[tokio::test(flavor = "multi_thread")]
async fn k23_three_nodes_under_load_fail_at_nothing() -> Result<(), BoxError> {
    const ROUNDS: u64 = 5;
    on_a_server(async |database| {
        let first = database.store("first").await?;
        first.prepare(SchemaMode::Migrate).await?;
        let ids = Arc::new(create(&first, 12).await?);
        let mut lanes = Vec::new();
        for lane in 0..3_usize {
            let (database, ids) = (database.clone(), ids.clone());
            lanes.push(tokio::spawn(async move {
                let store = database.store(&format!("node {lane}")).await?;
                for number in 1..=ROUNDS {
                    // Its own four, in descending order, each with a message to one of another node.
                    let group = (0..4_usize).rev().map(|own| {
                        let mut checkpoint = checkpoint(&ids[lane * 4 + own], number);
                        checkpoint.messages = vec![(ids[(lane * 4 + own + 5) % 12].clone(), Control::Resume)];
                        checkpoint.events = vec![NewEvent::new("packed", format!("{}", (lane + own) % 3))];
                        Arc::new(checkpoint)
                    });
                    let event = [NewEvent::new("packed", format!("{lane}"))];
                    let (poll, purge) =
                        (RunnableQuery::new(vec![("order".into(), 1)], 100), PurgeRequest::new().with_events(LIMIT));
                    let (answers, published, polled, purged) = tokio::join!(
                        store.commit(group.collect()),
                        store.publish(&event),
                        store.runnable(&poll),
                        store.purge(&purge)
                    );
                    for answer in answers {
                        assert!(matches!(answer, CheckpointOutcome::Committed(_)), "{answer:?}");
                    }
                    published?;
                    polled?;
                    purged?;
                }
                store.stop(LIMIT).await?;
                Ok::<_, BoxError>(())
            }));
        }
        for lane in lanes {
            lane.await??;
        }
        let (sent, published) = (12 * ROUNDS, 15 * ROUNDS);
        let statistics = first.statistics().await?;
        assert_eq!((statistics.inbox, statistics.events), (sent, published));
        first.stop(LIMIT).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn no_error_shows_the_connection_string() {
    let text = "Server=tcp:127.0.0.1,1;Database=x;User Id=u;Password=Str0ng-secret";
    let error = SqlServerStore::connect(text).await.expect_err("nobody listens");
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("127.0.0.1,1") && !shown.contains("Str0ng"), "{shown}");
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
}
