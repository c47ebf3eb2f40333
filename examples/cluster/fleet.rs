//! The node processes, as their parent sees them.

use std::{
    fmt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    process::{Child, Command},
    sync::oneshot,
    task::JoinSet,
    time::timeout,
};

use latchwork::prelude::Namespace;

use crate::{
    arguments::{LOCK, QUEUE, STORE},
    backend::Backends,
};

/// How long a node may take to stop before it is killed: its grace for running steps, and what its providers need.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// What became of a node process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Running,
    /// Ended with status 0 after it was told to.
    Stopped,
    /// Killed by the parent, as it was asked to.
    Killed,
    /// Did not stop in time, and was killed.
    Hung,
    /// Ended by itself, or with an error.
    Died(ExitStatus),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Stopped => f.write_str("stopped"),
            Self::Killed => f.write_str("killed"),
            Self::Hung => f.write_str("did not stop in time"),
            Self::Died(status) => write!(f, "died ({status})"),
        }
    }
}

/// What a node's watcher is told to do.
#[derive(Debug)]
enum End {
    Stop,
    Kill,
}

/// A node process.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) process: Option<u32>,
    pub(crate) fate: Fate,
    end: Option<oneshot::Sender<End>>,
}

/// All node processes of a run. Dropping it closes their standard inputs, at which they stop.
#[derive(Debug)]
pub(crate) struct Fleet {
    program: PathBuf,
    backends: Backends,
    namespace: Namespace,
    ledger: PathBuf,
    members: Vec<Member>,
    watchers: JoinSet<(usize, Fate)>,
}

impl Fleet {
    /// A fleet without nodes yet, which write their ledgers to this folder.
    pub(crate) fn new(backends: Backends, namespace: Namespace, ledger: PathBuf) -> Result<Self> {
        let program =
            std::env::current_exe().context("this program's own file cannot be found, so it cannot start node processes")?;
        Ok(Self { program, backends, namespace, ledger, members: Vec::new(), watchers: JoinSet::new() })
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.members.iter().filter(|member| member.fate == Fate::Running).count()
    }

    /// Starts one more.
    pub(crate) fn start(&mut self) -> Result<&Member> {
        let index = self.members.len();
        let name = format!("node-{}", index + 1);
        let Backends { store, queue, lock } = &self.backends;
        let mut child = Command::new(&self.program)
            .arg("node")
            .args(["--name", &name])
            .arg("--ledger")
            .arg(&self.ledger)
            .args(["--namespace", self.namespace.as_str()])
            .envs([(STORE, store.reveal()), (QUEUE, queue.reveal()), (LOCK, lock.reveal())])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{name} could not be started from {}", self.program.display()))?;
        let (end, told) = oneshot::channel();
        let process = child.id();
        // Waiting for a child closes its standard input, if it still has it; and that is the sign to stop.
        let input = child.stdin.take();
        self.watchers.spawn(async move { (index, watch(child, input, told).await) });
        self.members.push(Member { name, process, fate: Fate::Running, end: Some(end) });
        self.members.last().context("the node is gone")
    }

    /// Kills one with SIGKILL, the one that has run longest; its name. `None` when none runs.
    pub(crate) fn kill_one(&mut self) -> Option<&Member> {
        let victim = self.members.iter_mut().find(|member| member.fate == Fate::Running && member.end.is_some())?;
        if let Some(end) = victim.end.take() {
            // The watcher is gone only when the process is.
            let _ = end.send(End::Kill);
        }
        Some(victim)
    }

    /// The next one that has ended, and how; `None` when none is left. Dropping the future loses nothing.
    pub(crate) async fn next_end(&mut self) -> Option<(String, Fate)> {
        loop {
            // A watcher does not panic, so this passes over nothing.
            let Ok((index, fate)) = self.watchers.join_next().await? else { continue };
            if let Some(member) = self.members.get_mut(index) {
                member.fate = fate;
                member.end = None;
                return Some((member.name.clone(), fate));
            }
        }
    }

    /// Tells all to stop, and waits until they have.
    pub(crate) async fn stop(&mut self) {
        for end in self.members.iter_mut().filter_map(|member| member.end.take()) {
            let _ = end.send(End::Stop);
        }
        while self.next_end().await.is_some() {}
    }
}

/// Waits for a process to end, by itself or as it is told.
async fn watch(mut child: Child, input: Option<tokio::process::ChildStdin>, told: oneshot::Receiver<End>) -> Fate {
    let told = tokio::select! {
        biased;
        told = told => told,
        status = child.wait() => return status.map_or(Fate::Hung, Fate::Died),
    };
    match told {
        Ok(End::Kill) => {
            // An error says that the process is gone already.
            let _ = child.kill().await;
            Fate::Killed
        }
        Ok(End::Stop) | Err(_) => {
            drop(input);
            match timeout(STOP_LIMIT, child.wait()).await {
                Ok(Ok(status)) if status.success() => Fate::Stopped,
                Ok(Ok(status)) => Fate::Died(status),
                Ok(Err(_)) | Err(_) => {
                    let _ = child.kill().await;
                    Fate::Hung
                }
            }
        }
    }
}
