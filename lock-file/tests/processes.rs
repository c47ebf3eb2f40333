//! What only several processes can show. The children are this test binary itself: it is started again with only the test
//! `child` and a script for it in the environment.

#![cfg(unix)]

use latchwork_core::{
    BoxError,
    lock::{DistributedLockProvider, LockKey, LockProviderExt, LockRequest, Wait},
};
use latchwork_lock_file::{FileLockOptions, FileLocks, Layout};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

const SCRIPT: &str = "LATCHWORK_LOCK_FILE_TEST";
const LAYOUTS: [Layout; 2] = [Layout::Ranges, Layout::Files];
/// Generous: test machines are slow.
const SOON: Duration = Duration::from_secs(30);

fn options(directory: &Path, layout: Layout) -> FileLockOptions {
    FileLockOptions::new(directory).with_layout(layout)
}

/// A child process; killed when the test ends.
struct Node {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Node {
    fn start(role: &str, directory: &Path, layout: Layout) -> Result<Self, BoxError> {
        let layout = if layout == Layout::Files { "files" } else { "ranges" };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(SCRIPT, format!("{role} {layout} {}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let hears = child.stdin.take().ok_or("no stdin")?;
        Ok(Self { child, says, hears })
    }

    /// Reads until the child has said this; the test harness in it says other things too.
    fn hear(&mut self, word: &str) -> Result<(), BoxError> {
        let mut line = String::new();
        while self.says.read_line(&mut line)? > 0 {
            if line.trim_end().ends_with(word) {
                return Ok(());
            }
            line.clear();
        }
        Err(format!("the child ended without saying `{word}`").into())
    }

    fn tell(&mut self, word: &str) -> Result<(), BoxError> {
        Ok(writeln!(self.hears, "{word}")?)
    }

    fn signal(&self, signal: &str) -> Result<(), BoxError> {
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("the signal {signal} was not sent").into()) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what a child does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() -> Result<(), BoxError> {
    let Ok(script) = std::env::var(SCRIPT) else { return Ok(()) };
    let mut words = script.splitn(3, ' ');
    let (Some(role), Some(layout), Some(directory)) = (words.next(), words.next(), words.next()) else {
        return Err("a bad script".into());
    };
    let layout = if layout == "files" { Layout::Files } else { Layout::Ranges };
    let directory = PathBuf::from(directory);
    let locks = FileLocks::open_with(options(&directory, layout)).await?;
    match role {
        "hold" => {
            let mut held = Vec::new();
            for number in 0..100 {
                held.push(locks.try_lock(&format!("held-{number}")).await?.ok_or("not free")?);
            }
            let shared = locks.try_lock_shared("shared").await?.ok_or("not free")?;
            println!("holding");
            std::io::stdin().lines().next();
            drop((held, shared));
            locks.stop(SOON).await?;
            println!("freed");
        }
        "count" => {
            let mut tasks = Vec::new();
            for task in 0..8 {
                let (locks, directory) = (locks.clone(), directory.clone());
                tasks.push(tokio::spawn(async move {
                    for round in 0..20 {
                        count(&locks, &directory, &format!("name-{}", (task + round) % 5)).await?;
                    }
                    Ok::<_, BoxError>(())
                }));
            }
            for task in tasks {
                task.await??;
            }
            println!("counted");
        }
        _ => return Err("a bad role".into()),
    }
    Ok(())
}

/// Counts inside the lock as careless code would: a second holder at the same time loses a count, or meets the first one's
/// mark.
async fn count(locks: &FileLocks, directory: &Path, name: &str) -> Result<(), BoxError> {
    let guard = locks.lock(name, SOON).await?.ok_or("not granted in time")?;
    let (mark, counter) = (directory.join(format!("{name}.inside")), directory.join(format!("{name}.count")));
    fs::File::create_new(&mark).map_err(|_| "two were inside one lock at the same time")?;
    let seen: u64 = fs::read_to_string(&counter).map_or(Ok(0), |text| text.parse())?;
    tokio::task::yield_now().await;
    fs::write(&counter, (seen + 1).to_string())?;
    fs::remove_file(&mark)?;
    Ok(guard.release().await?)
}

#[tokio::test]
async fn k49_a_killed_holder_frees_at_once() -> Result<(), BoxError> {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir()?;
        let locks = FileLocks::open_with(options(directory.path(), layout)).await?;
        let mut node = Node::start("hold", directory.path(), layout)?;
        node.hear("holding")?;
        for number in 0..100 {
            assert!(locks.try_lock(&format!("held-{number}")).await?.is_none(), "{layout:?}");
        }
        assert!(locks.try_lock("shared").await?.is_none(), "{layout:?}");
        assert!(locks.try_lock_shared("shared").await?.is_some(), "{layout:?}");
        let waiting = tokio::spawn({
            let request = LockRequest::new(LockKey::new(locks.namespace(), "held-0")?).with_wait(Wait::Forever);
            let locks = locks.clone();
            async move { locks.acquire(request).await }
        });
        node.child.kill()?;
        node.child.wait()?;
        // One try each, without any wait.
        for number in 1..100 {
            assert!(locks.try_lock(&format!("held-{number}")).await?.is_some(), "{layout:?}");
        }
        assert!(locks.try_lock("shared").await?.is_some(), "{layout:?}");
        let granted = tokio::time::timeout(SOON, waiting).await???;
        assert!(granted.is_some(), "{layout:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_stopped_process_keeps_its_locks_until_it_goes_on() -> Result<(), BoxError> {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir()?;
        let locks = FileLocks::open_with(options(directory.path(), layout)).await?;
        let mut node = Node::start("hold", directory.path(), layout)?;
        node.hear("holding")?;
        node.signal("STOP")?;
        // Longer than any pause between tries.
        assert!(locks.lock("held-7", Duration::from_millis(200)).await?.is_none(), "{layout:?}");
        node.signal("CONT")?;
        node.tell("free")?;
        node.hear("freed")?;
        assert!(locks.try_lock("held-7").await?.is_some(), "{layout:?}");
    }
    Ok(())
}

#[tokio::test]
async fn three_processes_on_five_names_exclude_each_other() -> Result<(), BoxError> {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir()?;
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::start("count", directory.path(), layout)?);
        }
        for node in &mut nodes {
            node.hear("counted")?;
        }
        for number in 0..5 {
            let count: u64 = fs::read_to_string(directory.path().join(format!("name-{number}.count")))?.parse()?;
            assert_eq!(count, 3 * 8 * 20 / 5, "{layout:?}");
        }
        let left = fs::read_dir(directory.path())?.filter_map(Result::ok);
        let files = left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".lock")).count();
        assert_eq!(files, 0, "a lock file was left behind");
    }
    Ok(())
}
