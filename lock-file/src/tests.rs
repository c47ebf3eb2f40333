//! The suite of all lock providers on both layouts, for two providers of one process, which share a table, and for two that
//! know of each other through the operating system only, as two processes do; and what is this provider's own.

use crate::{FileLockOptions, FileLocks, Layout};
use latchwork_core::{
    BoxError,
    lock::{DistributedLockProvider, LockError, LockProviderExt, Loss},
};
use latchwork_testkit::lock::Fixture;
use std::{path::Path, time::Duration};

/// Each held lock of the layout `files` is an open file, and test machines allow few.
const OPEN_FILES: usize = 400;

async fn together(layout: Layout) -> Result<Fixture, BoxError> {
    let directory = tempfile::tempdir()?;
    let options = FileLockOptions::new(directory.path()).with_layout(layout);
    let (one, other) = (FileLocks::open_with(options.clone()).await?, FileLocks::open_with(options).await?);
    Ok(Fixture::new(one, other).with_kept(directory))
}

async fn apart(layout: Layout) -> Result<Fixture, BoxError> {
    let directory = tempfile::tempdir()?;
    let options = FileLockOptions::new(directory.path()).with_layout(layout);
    let (one, other) = (FileLocks::open_apart(options.clone()).await?, FileLocks::open_apart(options).await?);
    Ok(Fixture::new(one, other).with_kept(directory))
}

mod default_layout_in_one_process {
    latchwork_testkit::lock_conformance!(async || super::together(crate::Layout::default()).await);
}

mod default_layout_in_two_processes {
    latchwork_testkit::lock_conformance!(async || super::apart(crate::Layout::default()).await);
}

mod files_in_one_process {
    latchwork_testkit::lock_conformance!(async || Ok(super::together(crate::Layout::Files).await?.with_many(super::OPEN_FILES)));
}

mod files_in_two_processes {
    latchwork_testkit::lock_conformance!(async || Ok(super::apart(crate::Layout::Files).await?.with_many(super::OPEN_FILES)));
}

const LAYOUTS: [Layout; 2] = [Layout::Ranges, Layout::Files];

async fn open(directory: &Path, layout: Layout) -> FileLocks {
    FileLocks::open_apart(FileLockOptions::new(directory).with_layout(layout)).await.expect("opened")
}

fn listed(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name().to_string_lossy().into_owned();
    std::fs::read_dir(directory).expect("listed").map(name).filter(|name| name != "layout").collect()
}

#[tokio::test]
async fn a_held_name_is_a_readable_file_that_goes_with_its_last_holder() {
    let directory = tempfile::tempdir().expect("a folder");
    let locks = open(directory.path(), Layout::Files).await;
    let guard = locks.try_lock("order-1").await.expect("answered").expect("free");
    let names = listed(directory.path());
    assert!(names.len() == 1 && names[0].starts_with("wfc_order-1~"), "{names:?}");
    guard.release().await.expect("freed");
    assert_eq!(listed(directory.path()), Vec::<String>::new());

    let other = open(directory.path(), Layout::Files).await;
    let readers = [&locks, &other, &locks].map(|locks| locks.try_lock_shared("list"));
    for reader in readers {
        let reader = reader.await.expect("answered").expect("shared");
        assert_eq!(listed(directory.path()).len(), 1);
        reader.release().await.expect("freed");
    }
    assert_eq!(listed(directory.path()), Vec::<String>::new());
    assert_eq!(locks.held_names() + other.held_names(), 0);
}

#[tokio::test]
async fn stale_files_of_a_killed_process_are_harmless() {
    let directory = tempfile::tempdir().expect("a folder");
    let locks = open(directory.path(), Layout::Files).await;
    let guard = locks.try_lock("order-1").await.expect("answered").expect("free");
    let names = listed(directory.path());
    guard.release().await.expect("freed");
    // As a killed process leaves it: there, and locked by nobody.
    std::fs::write(directory.path().join(&names[0]), "").expect("written");
    let guard = locks.try_lock("order-1").await.expect("answered").expect("free");
    let other = open(directory.path(), Layout::Files).await;
    assert!(other.try_lock("order-1").await.expect("answered").is_none());
    guard.release().await.expect("freed");
    assert_eq!(listed(directory.path()), Vec::<String>::new());
}

#[tokio::test]
async fn no_name_leaves_a_trace_in_the_table() {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir().expect("a folder");
        let locks = open(directory.path(), layout).await;
        for number in 0..500 {
            let guard = locks.try_lock(&format!("name-{number}")).await.expect("answered").expect("free");
            guard.release().await.expect("freed");
        }
        assert_eq!(locks.held_names(), 0, "{layout:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_learn_that_their_directory_was_removed_and_it_is_made_anew() {
    for layout in LAYOUTS {
        let parent = tempfile::tempdir().expect("a folder");
        let directory = parent.path().join("locks");
        let locks = open(&directory, layout).await;
        let guard = locks.try_lock("order-1").await.expect("answered").expect("free");
        std::fs::remove_dir_all(&directory).expect("removed");
        let why = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.expect("told");
        assert_eq!(why, Loss::SessionClosed, "{layout:?}");
        let again = loop {
            // The old grant is undone after its holder was told.
            match locks.lock("order-1", Duration::from_secs(20)).await {
                Ok(again) => break again.expect("free"),
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        };
        locks.check().await.expect("healthy again");
        // A process that comes now sees what is held now.
        let other = open(&directory, layout).await;
        assert!(other.try_lock("order-1").await.expect("answered").is_none(), "{layout:?}");
        guard.release().await.expect("harmless");
        assert!(other.try_lock("order-1").await.expect("answered").is_none(), "{layout:?}");
        again.release().await.expect("freed");
        assert!(other.try_lock("order-1").await.expect("answered").is_some(), "{layout:?}");
    }
}

#[tokio::test]
async fn a_request_that_meets_a_removed_directory_is_a_retryable_error_that_names_it() {
    for layout in LAYOUTS {
        let parent = tempfile::tempdir().expect("a folder");
        let directory = parent.path().join("locks");
        // On one thread, so that nobody looks after the directory before the request does.
        let locks = open(&directory, layout).await;
        let held = locks.try_lock("held").await.expect("answered").expect("free");
        std::fs::remove_dir_all(&directory).expect("removed");
        if layout == Layout::Ranges {
            assert!(locks.check().await.is_err());
        }
        let error = locks.try_lock("order-1").await.expect_err("refused");
        assert!(error.is_retryable());
        let source = std::error::Error::source(&error).expect("a source").to_string();
        assert!(source.contains(&locks.directory().display().to_string()), "{source}");
        assert!(held.is_lost(), "{layout:?}");
    }
}

#[tokio::test]
async fn a_provider_that_is_opened_after_the_removal_can_lock_at_once() {
    let parent = tempfile::tempdir().expect("a folder");
    let directory = parent.path().join("locks");
    let first = FileLocks::open(&directory).await.expect("opened");
    let guard = first.try_lock("x").await.expect("answered").expect("free");
    std::fs::remove_dir_all(&directory).expect("removed");
    let second = FileLocks::open(&directory).await.expect("opened");
    assert!(guard.is_lost());
    assert!(second.lock("x", Duration::from_secs(20)).await.expect("answered").is_some());
}

#[tokio::test]
async fn a_directory_in_use_with_another_layout_is_refused() {
    let directory = tempfile::tempdir().expect("a folder");
    let _locks = open(directory.path(), Layout::Ranges).await;
    let other = FileLockOptions::new(directory.path()).with_layout(Layout::Files);
    let error = FileLocks::open_with(other).await.expect_err("refused");
    assert!(matches!(error, LockError::Refused { .. }));
    assert!(error.to_string().contains("in use with `latchwork file locks 1 ranges`"), "{error}");
}

#[tokio::test]
async fn a_directory_that_cannot_serve_is_refused_by_name_and_with_advice() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let paths = [file.path().to_owned(), file.path().join("below"), "/sys/latchwork".into()];
    for path in paths {
        let error = FileLocks::open(&path).await.expect_err("refused");
        assert!(matches!(error, LockError::Refused { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("name a"), "{text}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_is_made_is_for_its_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().expect("a folder");
    let locks = FileLocks::open(parent.path().join("a/b")).await.expect("opened");
    let mode = std::fs::metadata(locks.directory()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(locks.capabilities().domain, format!("file:{}", locks.directory().display()));
}

#[tokio::test]
async fn providers_of_one_process_share_a_table_by_any_path_to_the_directory() {
    let parent = tempfile::tempdir().expect("a folder");
    let one = FileLocks::open(parent.path().join("locks")).await.expect("opened");
    let other = FileLocks::open(parent.path().join("locks/../locks/.")).await.expect("opened");
    assert_eq!(one.capabilities().domain, other.capabilities().domain);
    let guard = one.try_lock("x").await.expect("answered").expect("free");
    assert_eq!(other.held_names(), 1);
    assert!(other.try_lock("x").await.expect("answered").is_none());
    drop(one);
    // The guard holds on without its provider.
    assert!(other.try_lock("x").await.expect("answered").is_none());
    drop(guard);
    assert!(other.try_lock("x").await.expect("answered").is_some());
}

#[tokio::test]
async fn a_process_that_hands_a_name_on_among_its_own_lets_others_in() {
    if Layout::default() != Layout::Ranges {
        return;
    }
    let directory = tempfile::tempdir().expect("a folder");
    let (ours, theirs) = (open(directory.path(), Layout::Ranges).await, open(directory.path(), Layout::Ranges).await);
    let waiter = |locks: &FileLocks| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("hot", Duration::from_secs(60)).await })
    };
    for _ in 0..3 {
        let first = ours.try_lock("hot").await.expect("answered").expect("free");
        let (second, other) = (waiter(&ours), waiter(&theirs));
        // The one real wait of this test: past the spell that a process has for itself.
        tokio::time::sleep(Duration::from_millis(70)).await;
        first.release().await.expect("freed");
        let other = other.await.expect("joined").expect("answered").expect("granted");
        assert!(!second.is_finished(), "the process served its own waiter first");
        other.release().await.expect("freed");
        let second = second.await.expect("joined").expect("answered").expect("granted");
        second.release().await.expect("freed");
    }
}
