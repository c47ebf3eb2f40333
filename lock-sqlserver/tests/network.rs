//! What goes wrong on the way to the server, through a proxy: on the simulated server, and on the one that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use futures_util::future::join_all;
use latchwork_core::lock::{DistributedLockProvider, LockError, LockGuard, LockProviderExt, Loss};
use latchwork_lock_sqlserver::{SqlServerLockOptions, SqlServerLocks};
use latchwork_sqlserver_client::{Session, driver::ColumnData};
use latchwork_testkit::proxy::{Cut, Way};
use std::time::Duration;
use support::{PATIENCE, Place, fresh, loss, take};

const SECOND: Duration = Duration::from_secs(1);

/// Only the socket can tell of a loss soon: the heartbeat is late.
fn rare(place: &Place) -> SqlServerLockOptions {
    place.options().with_heartbeat(5 * SECOND, 5 * SECOND)
}

/// How long a silence is waited out: a busy machine needs some time for what is answered.
const LIMIT: Duration = Duration::from_secs(4);

fn often(place: &Place) -> SqlServerLockOptions {
    place.options().with_heartbeat(Duration::from_millis(20), LIMIT).with_connect_timeout(LIMIT)
}

fn is_worth_another_try(error: &LockError) -> bool {
    matches!(error, LockError::Unavailable { .. }) && error.is_retryable()
}

#[tokio::test]
async fn a_cut_connection_is_told_before_anything_is_asked() {
    for place in Place::all().await {
        let locks = SqlServerLocks::connect(&rare(&place)).await.expect("connected");
        for how in [Cut::Close, Cut::Reset] {
            let name = fresh("cut");
            let guard = take(&locks, &name).await;
            let statements = || place.simulated.as_ref().map_or(0, |server| server.take_statements().len());
            let _ = statements();
            place.proxy.cut(how).await;
            assert_eq!(loss(&guard).await, Loss::SessionClosed, "{how:?}");
            assert_eq!(statements(), 0, "{how:?}: the socket told it, and no heartbeat");
            let newer = place.take_elsewhere(&name).await;
            // K08: what the lost guard says reaches nobody.
            guard.release().await.expect("harmless");
            assert!(place.try_elsewhere(&name).await.is_none());
            newer.release().await.expect("freed");
            // K50: the next request has a new session.
            take(&locks, &name).await.release().await.expect("freed");
        }
    }
}

#[tokio::test]
async fn the_end_of_an_encrypted_session_is_told_at_once_too() {
    let place = Place::encrypted().await;
    let server = place.simulated.as_ref().expect("simulated");
    let locks = SqlServerLocks::connect(&rare(&place)).await.expect("connected");
    let guard = take(&locks, "x").await;
    place.proxy.cut(Cut::Reset).await;
    assert_eq!(loss(&guard).await, Loss::SessionClosed);
    // The server says good-bye, encrypted, before it closes.
    let guard = take(&locks, "x").await;
    server.restart().await;
    assert!(guard.is_lost(), "told before the client has closed its end");
    take(&locks, "x").await.release().await.expect("freed");
}

#[tokio::test]
async fn k07_a_grant_whose_answer_is_lost_is_held_by_nobody() {
    for place in Place::all().await {
        let (locks, name) = (place.connect().await, fresh("unseen"));
        let beside = take(&locks, &fresh("beside")).await;
        place.proxy.hold(Way::Answers);
        let cut = async {
            place.proxy.until_held(Way::Answers).await;
            place.proxy.cut(Cut::Reset).await;
            place.proxy.carry_on();
        };
        let (answer, ()) = tokio::join!(locks.try_lock(&name), cut);
        let error = answer.expect_err("nobody knows what became of it");
        assert!(is_worth_another_try(&error), "{error}");
        assert_eq!(loss(&beside).await, Loss::SessionClosed);
        place.take_elsewhere(&name).await.release().await.expect("freed");
        take(&locks, &name).await.release().await.expect("freed");
    }
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_says_so_and_the_lock_is_free() {
    for place in Place::all().await {
        let (locks, name) = (place.connect().await, fresh("unconfirmed"));
        let guard = take(&locks, &name).await;
        place.proxy.hold(Way::Answers);
        let cut = async {
            place.proxy.until_held(Way::Answers).await;
            place.proxy.cut(Cut::Close).await;
            place.proxy.carry_on();
        };
        let (answer, ()) = tokio::join!(guard.release(), cut);
        let error = answer.expect_err("nobody knows what became of it");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
        place.take_elsewhere(&name).await.release().await.expect("freed");
        take(&locks, &name).await.release().await.expect("freed");
    }
}

#[tokio::test]
async fn a_time_out_in_the_middle_of_a_batch_leaves_none_of_its_locks_held() {
    for place in Place::all().await {
        let options = place.options().with_heartbeat(5 * SECOND, LIMIT);
        let locks = SqlServerLocks::connect(&options).await.expect("connected");
        let names: Vec<_> = (0..4).map(|number| fresh(&format!("batch-{number}"))).collect();
        // The server grants all of them, and its answer is never seen.
        place.proxy.hold(Way::Answers);
        let tries = join_all(names.iter().map(|name| locks.try_lock(name)));
        let granted = async {
            place.proxy.until_held(Way::Answers).await;
            place.simulated.as_ref().is_none_or(|server| server.held().len() == names.len())
        };
        let (answers, granted) = tokio::join!(tries, granted);
        assert!(granted);
        for answer in answers {
            let error = answer.expect_err("the time is over");
            assert!(is_worth_another_try(&error), "{error}");
        }
        assert_eq!(locks.held_names(), 0);
        place.proxy.carry_on();
        for name in &names {
            place.take_elsewhere(name).await.release().await.expect("freed");
        }
        take(&locks, &names[0]).await.release().await.expect("freed");
    }
}

#[tokio::test]
async fn a_way_that_falls_silent_ends_the_session_and_the_lock_is_free_when_the_server_knows() {
    for place in Place::all().await {
        for way in [Way::Requests, Way::Answers] {
            let locks = SqlServerLocks::connect(&often(&place)).await.expect("connected");
            let name = fresh("silent");
            let guard = take(&locks, &name).await;
            place.proxy.hold(way);
            assert_eq!(loss(&guard).await, Loss::SessionClosed, "{way:?}");
            if way == Way::Requests {
                // The machine has vanished, as the server sees it: it has heard of no end.
                assert!(place.try_elsewhere(&name).await.is_none());
            }
            let error = locks.try_lock(&name).await.expect_err("nobody answers");
            assert!(is_worth_another_try(&error), "{way:?}: {error}");
            place.proxy.cut(Cut::Reset).await;
            place.take_elsewhere(&name).await.release().await.expect("freed");
            place.proxy.carry_on();
            take(&locks, &name).await.release().await.expect("freed");
        }
    }
}

#[tokio::test]
async fn a_slow_connection_is_not_a_lost_one() {
    for place in Place::all().await {
        let options = place.options().with_heartbeat(Duration::from_millis(20), 5 * SECOND);
        let locks = SqlServerLocks::connect(&options).await.expect("connected");
        // Each heartbeat is due long before the one before it is answered.
        place.proxy.delay(Duration::from_millis(50));
        let names: Vec<_> = (0..10).map(|number| fresh(&format!("slow-{number}"))).collect();
        let guards = join_all(names.iter().map(|name| take(&locks, name))).await;
        for _ in 0..5 {
            locks.check().await.expect("slow, and alive");
        }
        assert!(!guards.iter().any(LockGuard::is_lost));
        assert!(place.try_elsewhere(&names[0]).await.is_none());
        for released in join_all(guards.into_iter().map(LockGuard::release)).await {
            released.expect("freed");
        }
        drop(place.take_elsewhere(&names[0]).await);
    }
}

#[tokio::test]
async fn k06_two_thousand_locks_are_held_on_one_connection() {
    for place in Place::all().await {
        let locks = place.connect().await;
        let (head, before) = (fresh("many"), place.proxy.accepted());
        let names: Vec<_> = (0..2_000).map(|number| format!("{head}-{number}")).collect();
        let guards = join_all(names.iter().map(|name| take(&locks, name))).await;
        assert_eq!((locks.held_names(), place.proxy.accepted()), (2_000, before));
        assert!(place.try_elsewhere(&names[0]).await.is_none() && place.try_elsewhere(&names[1_999]).await.is_none());
        for released in join_all(guards.into_iter().map(LockGuard::release)).await {
            released.expect("freed");
        }
        drop(place.take_elsewhere(&names[1_999]).await);
    }
}

#[tokio::test]
async fn k05_a_server_that_is_away_is_told_and_work_resumes_by_itself() {
    for place in Place::all().await {
        let (locks, name) = (place.connect().await, fresh("away"));
        let guard = take(&locks, &name).await;
        place.proxy.refuse(true);
        place.proxy.cut(Cut::Reset).await;
        assert_eq!(loss(&guard).await, Loss::SessionClosed);
        for answer in [locks.try_lock(&name).await.map(drop), locks.lock(&name, PATIENCE).await.map(drop), locks.check().await] {
            let error = answer.expect_err("away");
            assert!(is_worth_another_try(&error), "{error}");
        }
        assert_eq!(locks.held_names(), 0);
        place.proxy.refuse(false);
        locks.check().await.expect("it is back");
        take(&locks, &name).await.release().await.expect("freed");
    }
}

/// The return code of a batch that selects it.
async fn call(session: &mut Session, sql: &str) -> i64 {
    let results = session.query(sql, &[], PATIENCE).await.expect("answered");
    match results[0][0].cells().next() {
        Some((_, ColumnData::I32(Some(code)))) => i64::from(*code),
        Some((_, ColumnData::I64(Some(code)))) => *code,
        other => panic!("no code but {other:?}"),
    }
}

#[tokio::test]
async fn workflow_cores_own_call_and_this_provider_exclude_each_other() {
    for place in Place::all().await {
        let (locks, name) = (place.connect().await, fresh("x"));
        let acquire = format!(
            "DECLARE @r int; EXEC @r = sp_getapplock @Resource = 'wfc:{name}', @LockOwner = 'Session', @LockMode = 'Exclusive', \
             @LockTimeout = 0; SELECT @r AS code"
        );
        let release = format!(
            "DECLARE @r int; EXEC @r = sp_releaseapplock @Resource = 'wfc:{name}', @LockOwner = 'Session'; SELECT @r AS code"
        );
        let mut other = place.session().await;
        let guard = take(&locks, &name).await;
        assert_eq!(call(&mut other, &acquire).await, if place.is_babelfish { -999 } else { -1 });
        guard.release().await.expect("freed");
        assert_eq!(call(&mut other, &acquire).await, 0);
        assert!(locks.try_lock(&name).await.expect("answered").is_none());
        let (granted, code) = tokio::join!(locks.lock(&name, PATIENCE), call(&mut other, &release));
        assert!(granted.expect("answered").is_some());
        assert_eq!(code, 0);
    }
}

#[tokio::test]
async fn k50_a_session_that_is_killed_takes_its_locks_along_and_is_replaced() {
    for place in Place::all().await {
        let options = rare(&place);
        let locks = SqlServerLocks::connect(&options).await.expect("connected");
        let name = fresh("killed");
        let guard = take(&locks, &name).await;
        let application = format!("Latchwork Lock Manager/{}", options.node);
        match &place.simulated {
            Some(server) => server.kill_application(&application).await,
            None => {
                let mut session = place.session().await;
                let find = "SELECT CAST(session_id AS int) AS id FROM sys.dm_exec_sessions WHERE program_name = @P1";
                let found = session.query(find, &[&application.as_str()], PATIENCE).await.expect("found");
                let Some(id) = found[0].first().and_then(|row| row.get::<i32, _>("id")) else {
                    println!("skipped: the server does not show the names of programs, by which a session is found");
                    continue;
                };
                session.query(&format!("KILL {id}"), &[], PATIENCE).await.expect("killed");
            }
        }
        assert_eq!(loss(&guard).await, Loss::SessionClosed);
        place.take_elsewhere(&name).await.release().await.expect("freed");
        take(&locks, &name).await.release().await.expect("freed");
    }
}
