//! What goes wrong between a provider and its server, each on the simulated one.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use futures_util::future::join_all;
use latchwork_core::{
    BoxError,
    lock::{DistributedLockProvider, LockError, LockGuard, LockKey, LockProviderExt, LockRequest, Loss, Wait},
    name::Namespace,
};
use latchwork_lock_sqlserver::{SqlServerLockOptions, SqlServerLocks};
use latchwork_testkit::sqlserver::SimulatedSqlServer;
use std::{collections::BTreeSet, task::Poll, time::Duration};
use support::{PATIENCE, loss, take};

type Tested = Result<(), BoxError>;

fn options(server: &SimulatedSqlServer) -> SqlServerLockOptions {
    SqlServerLockOptions::new(server.connection_string()).with_node("one")
}

async fn connect(server: &SimulatedSqlServer) -> Result<SqlServerLocks, LockError> {
    SqlServerLocks::connect(&options(server)).await
}

/// Until the server holds nothing, on its own or after what the provider has still to send.
async fn until_nothing_is_held(server: &SimulatedSqlServer) {
    let freed = async {
        while !server.held().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("everything is freed");
}

#[tokio::test]
async fn k06_ten_thousand_locks_are_held_on_at_most_four_connections() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = SqlServerLocks::connect(&options(&server).with_connections(4)).await?;
    let mut taking = tokio::task::JoinSet::new();
    for number in 0..10_000 {
        let locks = locks.clone();
        taking.spawn(async move { take(&locks, &number.to_string()).await });
    }
    let guards = taking.join_all().await;
    assert_eq!(server.held().len(), 10_000);
    assert_eq!(server.sessions().len(), 4);
    assert!(server.sessions().iter().all(|session| session.application == "Latchwork Lock Manager/one"));
    let _ = server.take_statements();
    locks.stop(PATIENCE).await?;
    assert!(server.held().is_empty());
    assert!(guards.iter().all(LockGuard::is_lost));
    // A thousand names in a request, on each of the four connections.
    assert!(server.take_statements().len() <= 16);
    Ok(())
}

#[tokio::test]
async fn requests_that_come_meanwhile_go_as_one_with_the_releases_first() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = SqlServerLocks::connect(&options(&server).with_connections(1)).await?;
    let held = take(&locks, "a").await;
    let _ = server.take_statements();
    server.delay(Duration::from_millis(20));
    let names: Vec<String> = (0..49).map(|number| format!("b{number}")).collect();
    let first = take(&locks, "first");
    let rest = async {
        tokio::task::yield_now().await;
        drop(held);
        // Behind its release in the same request.
        let again = take(&locks, "a");
        let all = names.iter().map(|name| take(&locks, name));
        let mut guards = vec![];
        let mut pending: Vec<_> = all.map(Box::pin).collect();
        let again = tokio::join!(again, async {
            std::future::poll_fn(|context| {
                pending.retain_mut(|one| match one.as_mut().poll(context) {
                    Poll::Ready(guard) => {
                        guards.push(guard);
                        false
                    }
                    Poll::Pending => true,
                });
                if pending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        (again.0, guards)
    };
    let (first, (again, guards)) = tokio::join!(first, rest);
    assert_eq!(guards.len(), 49);
    let statements = server.take_statements();
    assert!(statements.len() <= 3, "{} requests for 51 locks and a release", statements.len());
    assert_eq!(server.held().len(), 51);
    drop((first, again, guards));
    until_nothing_is_held(&server).await;
    Ok(())
}

#[tokio::test]
async fn k50_a_killed_session_takes_only_its_own_locks_and_is_replaced() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    // Only the socket can tell: the next heartbeat is later than the kill waits for the client.
    let rare = options(&server).with_heartbeat(Duration::from_secs(9), Duration::from_secs(1));
    let (locks, other) = (SqlServerLocks::connect(&rare).await?, connect(&server).await?);
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(take(&locks, &number.to_string()).await);
    }
    let sessions: BTreeSet<u16> = server.held().iter().map(|held| held.session).collect();
    assert_eq!(sessions.len(), 2);
    let killed = *sessions.first().expect("a session");
    let of_killed: BTreeSet<String> =
        server.held().into_iter().filter(|held| held.session == killed).map(|held| held.resource).collect();
    server.kill(killed).await;
    for guard in &guards {
        assert_eq!(guard.is_lost(), of_killed.contains(guard.key().as_str()), "{}", guard.key());
    }
    let name = of_killed.first().expect("a lock").trim_start_matches("wfc:").to_owned();
    let newer = take(&locks, &name).await;
    // K08: what the old guards say reaches nobody.
    for guard in guards {
        guard.release().await?;
    }
    assert!(other.try_lock(&name).await?.is_none());
    assert!(!newer.is_lost());
    newer.release().await?;
    assert!(server.held().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_restart_is_told_to_all_holders_and_the_next_request_connects_again() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = connect(&server).await?;
    let guards = (take(&locks, "a").await, take(&locks, "b").await, take(&locks, "c").await);
    server.restart().await;
    for guard in [&guards.0, &guards.1, &guards.2] {
        assert_eq!(loss(guard).await, Loss::SessionClosed);
    }
    let again = take(&locks, "a").await;
    assert!(!again.is_lost());
    locks.check().await?;
    Ok(())
}

#[tokio::test]
async fn a_silent_server_is_noticed_by_the_heartbeat() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let quick = options(&server).with_heartbeat(Duration::from_millis(20), Duration::from_secs(4));
    let locks = SqlServerLocks::connect(&quick.with_connect_timeout(Duration::from_secs(4))).await?;
    let guard = take(&locks, "x").await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(!guard.is_lost(), "a heartbeat that is answered keeps the session");
    server.be_silent(true);
    assert_eq!(loss(&guard).await, Loss::SessionClosed);
    let error = locks.try_lock("y").await.expect_err("the server is silent");
    assert!(matches!(error, LockError::Unavailable { .. }) && error.is_retryable(), "{error}");
    assert!(locks.check().await.is_err());
    server.be_silent(false);
    let guard = locks.lock("x", PATIENCE).await?.expect("free");
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_request_that_times_out_half_way_leaves_nothing_held() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let quick = options(&server).with_heartbeat(Duration::from_secs(5), Duration::from_secs(1));
    let locks = SqlServerLocks::connect(&quick.with_connections(1)).await?;
    let beside = take(&locks, "beside").await;
    // The server grants it, and its answer is never seen.
    server.be_silent(true);
    assert!(locks.try_lock("x").await.expect_err("silent").is_retryable());
    assert!(beside.is_lost(), "a session of which not all is known is given up");
    until_nothing_is_held(&server).await;
    server.be_silent(false);
    take(&locks, "x").await.release().await?;
    let guard = take(&locks, "x").await;
    server.be_silent(true);
    let error = guard.release().await.expect_err("not confirmed");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_refused_log_in_is_an_error_that_says_whether_to_try_again() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    server.refuse_log_in(Some((18456, "Login failed for user 'latchwork'.")));
    let error = connect(&server).await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("18456"));
    server.refuse_log_in(Some((40613, "Database is not currently available.")));
    assert!(connect(&server).await.expect_err("refused").is_retryable());
    server.refuse_log_in(None);
    let locks = connect(&server).await?;
    let guard = take(&locks, "x").await;
    server.refuse_log_in(Some((18456, "Login failed for user 'latchwork'.")));
    server.restart().await;
    assert!(guard.is_lost());
    // Many who wait are told by one try.
    let before = server.log_ins();
    let tries = tokio::join!(locks.try_lock("x"), locks.try_lock("y"), locks.try_lock("z"), locks.lock("w", PATIENCE));
    assert!(tries.0.is_err() && tries.1.is_err() && tries.2.is_err() && tries.3.is_err());
    assert!(server.log_ins() - before <= 8);
    server.refuse_log_in(None);
    take(&locks, "x").await.release().await?;
    // No secret shows anywhere.
    assert!(!format!("{error} {error:?} {locks:?} {:?}", options(&server)).contains("Str0ng"));
    Ok(())
}

#[tokio::test]
async fn return_codes_mean_what_the_table_says() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let (locks, other) = (connect(&server).await?, connect(&server).await?);
    server.answer_next_acquire(1, None);
    drop(take(&locks, "granted").await);
    server.answer_next_acquire(-1, None);
    assert!(locks.try_lock("x").await?.is_none());
    server.answer_next_acquire(-2, None);
    assert!(locks.lock("x", PATIENCE).await?.is_none());
    server.answer_next_acquire(-3, None);
    let error = locks.try_lock("x").await.expect_err("a deadlock");
    assert!(matches!(error, LockError::Deadlock { .. }) && error.is_retryable(), "{error}");
    server.answer_next_acquire(-999, Some("An invalid parameter was specified."));
    let error = locks.try_lock("x").await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }) && error.to_string().contains("An invalid parameter"), "{error}");
    // Without an error the holder may have freed it just then: it is asked once more, and not again and again.
    server.answer_next_acquire(-999, None);
    take(&locks, "x").await.release().await?;
    server.answer_next_acquire(-999, None);
    server.answer_next_acquire(-999, None);
    assert!(matches!(locks.try_lock("x").await, Err(LockError::Refused { .. })));
    // The same code, and another session that holds it.
    let guard = take(&other, "x").await;
    server.answer_next_acquire(-999, None);
    assert!(locks.try_lock("x").await?.is_none());
    guard.release().await?;
    take(&locks, "x").await.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_lock_that_fails_harms_none_of_its_batch() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    server.create_sequence("dbo.fence");
    for fenced in [false, true] {
        let options = options(&server).with_connections(1);
        let options = if fenced { options.with_fencing_sequence("dbo.fence") } else { options };
        let locks = SqlServerLocks::connect(&options).await?;
        let before = take(&locks, "before").await;
        let _ = server.take_statements();
        server.be_silent(true);
        // In the batch that waits for the answer to the first: a release, an error, a deadlock, a refusal, and six that are granted.
        let batch = async {
            while server.held().len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            server.answer_next_acquire(-999, Some("An invalid parameter was specified."));
            server.answer_next_acquire(-3, None);
            server.answer_next_acquire(-1, None);
            drop(before);
            let names = ["error", "deadlock", "held", "0", "1", "2", "3", "4", "5"];
            let tries = join_all(names.map(|name| locks.try_lock(name)));
            tokio::join!(tries, async { server.be_silent(false) }).0
        };
        let (first, answers) = tokio::join!(take(&locks, "first"), batch);
        let batches = server.take_statements().into_iter().filter(|text| text.contains("sp_getapplock")).count();
        assert_eq!(batches, 2, "the first, and one for all others");
        let mut answers = answers.into_iter();
        assert!(matches!(answers.next(), Some(Err(LockError::Refused { .. }))));
        assert!(matches!(answers.next(), Some(Err(LockError::Deadlock { .. }))));
        assert!(matches!(answers.next(), Some(Ok(None))));
        let guards: Vec<LockGuard> = answers.map(|answer| answer.expect("answered").expect("granted")).collect();
        let held: BTreeSet<String> = server.held().into_iter().map(|held| held.resource).collect();
        let expected = ["first", "0", "1", "2", "3", "4", "5"].map(|name| format!("wfc:{name}"));
        assert_eq!(held, BTreeSet::from(expected));
        for (number, guard) in guards.iter().enumerate() {
            assert_eq!(guard.key().as_str(), format!("wfc:{number}"));
            assert_eq!(guard.fencing_token().is_some(), fenced);
        }
        drop((first, guards));
        until_nothing_is_held(&server).await;
    }
    Ok(())
}

#[tokio::test]
async fn k07_an_acquire_that_is_dropped_at_any_await_leaves_nothing_held() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = connect(&server).await?;
    server.delay(Duration::from_millis(2));
    let key = |name: &str| LockKey::new(&Namespace::default(), name);
    for held in [false, true] {
        for polls in 0..12 {
            let rival = if held { Some(take(&locks, "x").await) } else { None };
            let request = LockRequest::new(key("x")?).with_wait(Wait::Forever);
            let mut acquire = Box::pin(locks.acquire(request));
            for _ in 0..polls {
                let polled = std::future::poll_fn(|context| Poll::Ready(acquire.as_mut().poll(context).is_ready())).await;
                if polled {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            drop(acquire);
            drop(rival);
            // Granted at once: nothing of it is left in the table, and what is under way is given back before.
            locks.lock("x", PATIENCE).await?.expect("free").release().await?;
            until_nothing_is_held(&server).await;
            assert_eq!(locks.held_names(), 0, "after {polls} polls");
        }
    }
    Ok(())
}

#[tokio::test]
async fn k07_a_release_that_is_dropped_at_any_await_frees_all_the_same() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = connect(&server).await?;
    server.delay(Duration::from_millis(2));
    for polls in 0..12 {
        let guard = take(&locks, "x").await;
        let mut release = Box::pin(guard.release());
        for _ in 0..polls {
            if std::future::poll_fn(|context| Poll::Ready(release.as_mut().poll(context).is_ready())).await {
                break;
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        drop(release);
        until_nothing_is_held(&server).await;
        assert_eq!(locks.held_names(), 0, "after {polls} polls");
    }
    Ok(())
}

#[tokio::test]
async fn a_read_only_database_has_locks_but_no_numbers_for_them() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    server.create_sequence("dbo.fence");
    let fenced = options(&server).with_fencing_sequence("dbo.fence");
    let numbered = SqlServerLocks::connect(&fenced).await?;
    let read_only = Some((3906, "Failed to update database \"orders\" because the database is read-only."));
    server.fail("dbo.fence", read_only);
    let locks = connect(&server).await?;
    take(&locks, "x").await.release().await?;
    // A lock without its number is none, and is given back.
    let error = numbered.try_lock("x").await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }) && error.to_string().contains("read-only"), "{error}");
    until_nothing_is_held(&server).await;
    let error = SqlServerLocks::connect(&fenced).await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }) && error.to_string().contains("read-only"), "{error}");
    server.fail("dbo.fence", None);
    assert!(take(&numbered, "x").await.fencing_token().is_some());
    Ok(())
}

#[tokio::test]
async fn a_missing_permission_is_told_with_the_servers_words() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    server.create_sequence("dbo.fence");
    let denied = Some((229, "The UPDATE permission was denied on the object 'fence'."));
    server.fail("dbo.fence", denied);
    let error = SqlServerLocks::connect(&options(&server).with_fencing_sequence("dbo.fence")).await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }) && error.to_string().contains("UPDATE permission"), "{error}");
    let locks = SqlServerLocks::connect(&options(&server).with_connections(1)).await?;
    let denied = Some((229, "The EXECUTE permission was denied on the object 'sp_getapplock'."));
    server.fail("sp_getapplock", denied);
    let error = locks.try_lock("x").await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("229") && error.to_string().contains("EXECUTE permission"), "{error}");
    server.fail("sp_getapplock", None);
    // What may be taken and not be freed ends with its session.
    let guard = take(&locks, "x").await;
    let beside = take(&locks, "beside").await;
    server.fail("sp_releaseapplock", Some((229, "The EXECUTE permission was denied on the object 'sp_releaseapplock'.")));
    let error = guard.release().await.expect_err("not freed alone");
    let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(reason.contains("EXECUTE permission"), "{error}: {reason}");
    assert_eq!(loss(&beside).await, Loss::SessionClosed);
    until_nothing_is_held(&server).await;
    Ok(())
}

#[tokio::test]
async fn k49_a_provider_that_is_dropped_with_its_guards_frees_all() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = connect(&server).await?;
    let guard = take(&locks, "x").await;
    drop(locks);
    assert_eq!(server.held().len(), 1, "a guard outlives its provider");
    drop(guard);
    until_nothing_is_held(&server).await;
    Ok(())
}

#[tokio::test]
async fn a_missing_fencing_sequence_is_refused_at_the_start() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let fenced = options(&server).with_fencing_sequence("dbo.fence");
    let error = SqlServerLocks::connect(&fenced).await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }) && error.to_string().contains("208"), "{error}");
    server.create_sequence("dbo.fence");
    let locks = SqlServerLocks::connect(&fenced).await?;
    let first = take(&locks, "x").await.fencing_token();
    assert!(first.is_some());
    assert!(locks.lock("x", PATIENCE).await?.expect("free").fencing_token() > first);
    Ok(())
}

#[tokio::test]
async fn names_beyond_the_servers_limit_stay_apart_and_readable() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = connect(&server).await?;
    let head = "ż".repeat(200);
    let guards = (take(&locks, &format!("{head}a")).await, take(&locks, &format!("{head}b")).await);
    let held = server.held();
    assert_eq!(held.len(), 2);
    assert!(held.iter().all(|held| held.resource.starts_with("wfc:żżż") && held.resource.len() <= 255));
    drop(guards);
    Ok(())
}

#[tokio::test]
async fn locks_belong_to_the_database_of_the_first_session() -> Tested {
    let server = SimulatedSqlServer::start().await?;
    let locks = connect(&server).await?;
    let elsewhere = SqlServerLocks::connect(&SqlServerLockOptions::new(server.connection_string_of("other"))).await?;
    let _guards = (take(&locks, "x").await, take(&elsewhere, "x").await);
    let address = server.address();
    assert_eq!(locks.capabilities().domain, format!("sqlserver:127.0.0.1,{}/orders", address.port()));
    assert_ne!(locks.capabilities().domain, elsewhere.capabilities().domain);
    Ok(())
}
