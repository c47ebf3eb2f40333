use latchwork_core::{lock::LockError, name::Namespace};
use latchwork_sqlserver_client::ConnectionString;
use std::time::Duration;

/// How locks are taken from SQL Server.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to `SqlServerLocks::connect`"]
#[non_exhaustive]
pub struct SqlServerLockOptions {
    /// Where, and as whom. Locks belong to the database that it names.
    pub connection_string: ConnectionString,
    /// Where names are made. Default `wfc`, Workflow Core's own.
    pub namespace: Namespace,
    /// The name of this node, which the server's list of sessions shows. Default: the number of the process.
    pub node: String,
    /// How many connections carry the locks of this node, 1 to 4. Default 2. A name always has the same one.
    pub connections: usize,
    /// A session that sent nothing for so long is asked for a sign of life. Default 4 s.
    pub heartbeat: Duration,
    /// Longest time for an answer; after it the session counts as lost. Default 5 s.
    pub answer_within: Duration,
    /// Longest time for a connection and its log-in. Default 15 s.
    pub connect_timeout: Duration,
    /// A sequence of the type `bigint` that numbers the grants, for example `dbo.latchwork_fence`. Default: none, and no fencing
    /// tokens.
    pub fencing_sequence: Option<String>,
}

impl SqlServerLockOptions {
    /// Locks by this ADO.NET connection string.
    pub fn new(connection_string: impl Into<ConnectionString>) -> Self {
        Self {
            connection_string: connection_string.into(),
            namespace: Namespace::default(),
            node: std::process::id().to_string(),
            connections: 2,
            heartbeat: Duration::from_secs(4),
            answer_within: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(15),
            fencing_sequence: None,
        }
    }

    /// Makes keys in this namespace.
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Shown to the server as this node.
    pub fn with_node(mut self, node: impl Into<String>) -> Self {
        self.node = node.into();
        self
    }

    /// On so many connections, 1 to 4.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Asks a session that sent nothing for so long for a sign of life, and waits so long for any answer. Their sum is the longest
    /// time in which a silent server is noticed, and may not be more than 10 s.
    pub fn with_heartbeat(mut self, every: Duration, answer_within: Duration) -> Self {
        self.heartbeat = every;
        self.answer_within = answer_within;
        self
    }

    /// With this limit for a connection and its log-in.
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Numbers the grants by this sequence, named with its schema; it must be there and ascend.
    pub fn with_fencing_sequence(mut self, name: impl Into<String>) -> Self {
        self.fencing_sequence = Some(name.into());
        self
    }

    /// # Errors
    /// [`LockError::Refused`] with the reason.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let refused = |reason: String| Err(LockError::refused(crate::PROVIDER, "options", reason));
        if !(1..=4).contains(&self.connections) {
            return refused(format!("{} connections; 1 to 4 carry any number of locks", self.connections));
        }
        if self.heartbeat.is_zero() || self.answer_within.is_zero() || self.connect_timeout.is_zero() {
            return refused("a time of zero".to_owned());
        }
        if self.heartbeat.saturating_add(self.answer_within) > Duration::from_secs(10) {
            let (every, within) = (self.heartbeat, self.answer_within);
            return refused(format!(
                "a heartbeat every {every:?} that is answered within {within:?} notices a silent server after more than 10 s"
            ));
        }
        match &self.fencing_sequence {
            Some(name) if quoted(name).is_none() => {
                refused(format!("`{name}` is no name of a sequence; use letters, digits and `_`, with a schema before a `.`"))
            }
            _ => Ok(()),
        }
    }

    /// The name of the sequence, in brackets.
    pub(crate) fn fencing(&self) -> Option<String> {
        self.fencing_sequence.as_deref().and_then(quoted)
    }
}

fn quoted(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('.').collect();
    let plain = |part: &&str| !part.is_empty() && part.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    let valid = parts.len() <= 2 && name.len() <= 200 && parts.iter().all(plain);
    valid.then(|| format!("[{}]", parts.join("].[")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused_with_the_reason() {
        let options = || SqlServerLockOptions::new("Server=x");
        let second = Duration::from_secs(1);
        assert!(options().check().is_ok());
        for (wrong, reason) in [
            (options().with_connections(0), "0 connections"),
            (options().with_connections(5), "5 connections"),
            (options().with_heartbeat(Duration::ZERO, second), "zero"),
            (options().with_heartbeat(second, 10 * second), "more than 10 s"),
            (options().with_fencing_sequence("dbo.x]; DROP TABLE y"), "no name of a sequence"),
            (options().with_fencing_sequence("a.b.c"), "no name of a sequence"),
        ] {
            assert!(wrong.check().expect_err("refused").to_string().contains(reason));
        }
        assert_eq!(options().with_fencing_sequence("dbo.fence").fencing().as_deref(), Some("[dbo].[fence]"));
    }
}
