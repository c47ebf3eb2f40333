//! Running a command, and saying plainly which one failed.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// How often a command with a time limit is looked at.
const LIMIT_POLL: Duration = Duration::from_millis(100);

/// One command, run in the root of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    /// As a reader would type it.
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// What a reader types to call cargo.
const CARGO: &str = "cargo";

impl CommandLine {
    /// `cargo` with these arguments.
    pub(crate) fn cargo<A: Into<String>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::program(Path::new(CARGO)).arguments(arguments)
    }

    /// Another program, by its path.
    pub(crate) fn program(path: &Path) -> Self {
        Self { program: path.display().to_string(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// Appends arguments.
    pub(crate) fn arguments<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets one environment variable.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it with its output shown; an error when it fails.
    pub(crate) fn run(&self) -> Result<()> {
        println!("$ {self}");
        let status = self.command().status().with_context(|| format!("cannot start `{self}`"))?;
        self.check(status)
    }

    /// Runs it with its output shown, and ends it when it takes longer than `limit`.
    pub(crate) fn run_within(&self, limit: Duration) -> Result<()> {
        println!("$ {self}");
        let mut child = self.command().stdin(Stdio::null()).spawn().with_context(|| format!("cannot start `{self}`"))?;
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return self.check(status);
            }
            if started.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                bail!("`{self}` did not end within {} s and was stopped", limit.as_secs());
            }
            thread::sleep(LIMIT_POLL);
        }
    }

    /// Runs it and returns what it printed; its errors are shown when it fails.
    pub(crate) fn read(&self) -> Result<String> {
        let output = self.command().stderr(Stdio::piped()).output().with_context(|| format!("cannot start `{self}`"))?;
        if !output.status.success() {
            bail!("`{self}` failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` printed something that is not UTF-8"))
    }

    /// Whether it can be started and succeeds; nothing is shown.
    pub(crate) fn succeeds(&self) -> bool {
        self.command().stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        // Cargo names itself to what it runs, so that the same toolchain is used again.
        let cargo = std::env::var_os("CARGO").filter(|_| self.program == CARGO);
        let program = cargo.unwrap_or_else(|| OsString::from(&self.program));
        let mut command = Command::new(program);
        command.args(&self.arguments).current_dir(workspace::root());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        bail!("`{self}` failed ({status})")
    }
}

/// The line a reader can paste into a shell.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(&self.program))?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_so_that_it_can_be_pasted() {
        let command = CommandLine::cargo(["doc", "-E", "test(a b)"]).environment("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc -E 'test(a b)'");
    }

    #[test]
    fn a_failing_command_is_named_in_its_error() {
        let error = CommandLine::cargo(["no-such-task"]).read().unwrap_err().to_string();
        assert!(error.starts_with("`cargo no-such-task` failed"), "{error}");
        assert!(!CommandLine::cargo(["no-such-task"]).succeeds());
    }
}
