//! What can go wrong, and what it means to the engine.

use latchwork_core::store::{StoreError, StoreErrorKind};
use latchwork_sqlserver_client::SqlServerError;

/// What a commit throws when another one came between its look at the fences and its write.
const CAME_BETWEEN: u32 = 50_409;

/// Why a request of the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server, or the way to it.
    #[error(transparent)]
    Server(#[from] SqlServerError),
    /// What is stored cannot be what was written.
    #[error("{0}")]
    Corrupt(String),
    /// A value cannot be written as JSON.
    #[error("{0}")]
    Unwritable(String),
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Unwritable(error.to_string())
    }
}

impl Failure {
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// Two calls wrote the same row at the same moment; the next try finds it.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Server(error) if matches!(error.number(), Some(2601 | 2627 | CAME_BETWEEN)))
    }

    /// Whether it would be the same for every other member of a group too.
    pub(crate) fn concerns_all(&self) -> bool {
        matches!(self, Self::Server(error) if error.is_transient() || matches!(error, SqlServerError::Stopped))
    }

    fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Corrupt(_) => StoreErrorKind::Corrupt,
            Self::Unwritable(_) => StoreErrorKind::Invalid,
            Self::Server(error) if error.is_transient() || self.is_duplicate() => StoreErrorKind::Unavailable,
            Self::Server(error) => match error {
                SqlServerError::Stopped => StoreErrorKind::Stopped,
                SqlServerError::Schema { .. } => StoreErrorKind::Schema,
                SqlServerError::LogIn { .. } | SqlServerError::NoTls { .. } | SqlServerError::Tls { .. } => {
                    StoreErrorKind::Denied
                }
                SqlServerError::ConnectionString { .. } => StoreErrorKind::Invalid,
                SqlServerError::Server { number, .. } => match number {
                    1101 | 1105 | 9002 | 40544 => StoreErrorKind::Full,
                    229 | 230 | 262 | 297 | 300 | 916 | 3906 => StoreErrorKind::Denied,
                    207 | 208 => StoreErrorKind::Schema,
                    _ => StoreErrorKind::Invalid,
                },
                _ => StoreErrorKind::Unavailable,
            },
        }
    }

    /// As the store's error; `store` names it without secrets.
    pub(crate) fn of(self, store: &str, action: &str) -> StoreError {
        let kind = self.kind();
        let advice = match kind {
            StoreErrorKind::Stopped => "the store was stopped; open it again".to_owned(),
            StoreErrorKind::Full => format!("{self}; make room in the database or its log"),
            StoreErrorKind::Denied => format!("{self}; the README of this crate lists the rights that are needed"),
            StoreErrorKind::Schema if !matches!(self, Self::Server(SqlServerError::Schema { .. })) => {
                format!("{self}; prepare the schema, or let a DBA run the script")
            }
            _ => self.to_string(),
        };
        let error = StoreError::new(kind, store, action).with_advice(advice);
        match self {
            Self::Server(source) => error.with_source(source),
            Self::Corrupt(_) | Self::Unwritable(_) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_be_written_is_told_from_what_can_be_tried_again() {
        let kind = |error: SqlServerError| Failure::from(error).of("sqlserver:db/orders", "commit").kind;
        assert_eq!(kind(SqlServerError::closed("cut")), StoreErrorKind::Unavailable);
        assert_eq!(kind(SqlServerError::protocol("no")), StoreErrorKind::Unavailable);
        assert_eq!(kind(SqlServerError::Stopped), StoreErrorKind::Stopped);
        assert_eq!(Failure::corrupt("x").of("s", "a").kind, StoreErrorKind::Corrupt);
        assert!(Failure::from(SqlServerError::closed("cut")).concerns_all());
        assert!(!Failure::corrupt("x").concerns_all());
    }
}
