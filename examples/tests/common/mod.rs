//! Running the cluster program.
#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::Value;
use std::{
    io::Read,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};

/// A run that takes longer hangs.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);

pub(crate) fn cluster(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cluster"));
    command.args(arguments).arg("--dir").arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("RUST_LOG");
    command
}

/// What is left of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Self {
        wait(command.spawn().expect("the program starts"))
    }

    /// The line of JSON, which is all there is on standard output.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.out.trim_end().lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).expect("JSON")
    }

    pub(crate) fn numbers<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let json = self.json();
        names.map(|name| json[name].as_u64().unwrap_or_else(|| panic!("{name} in {self:?}")))
    }
}

/// Waits for a process and for all that share its outputs: its nodes are gone, too.
pub(crate) fn wait(mut child: Child) -> Ended {
    let (sender, texts) = mpsc::channel();
    let outputs: [Box<dyn Read + Send>; 2] =
        [Box::new(child.stdout.take().expect("an output")), Box::new(child.stderr.take().expect("an output"))];
    for (number, mut output) in outputs.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = output.read_to_string(&mut text).map(|_| text);
            let _ = sender.send((number, read));
        });
    }
    let mut read: [String; 2] = Default::default();
    for _ in 0..2 {
        match texts.recv_timeout(LIMIT) {
            Ok((number, text)) => read[number] = text.expect("text"),
            Err(_) => {
                let _ = child.kill();
                panic!("the program does not end; so far: {read:?}");
            }
        }
    }
    let [out, err] = read;
    Ended { status: child.wait().expect("a status"), out, err }
}

/// What the audit counts.
pub(crate) const COUNTS: [&str; 5] = ["orders", "completed", "failed", "lost", "duplicated_transitions"];
