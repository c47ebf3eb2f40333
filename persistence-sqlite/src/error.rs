//! Errors of the file as errors of the store.

use latchwork_core::store::{StoreError, StoreErrorKind};
use latchwork_sqlite_client::{SqliteError, SqliteErrorKind, sqlx};

/// What the client could not do, as the store's error.
pub(crate) fn store_error(store: &str, action: &str, error: SqliteError) -> StoreError {
    let kind = match error.kind() {
        SqliteErrorKind::Busy | SqliteErrorKind::Io => StoreErrorKind::Unavailable,
        SqliteErrorKind::DiskFull => StoreErrorKind::Full,
        SqliteErrorKind::Corrupt => StoreErrorKind::Corrupt,
        SqliteErrorKind::ReadOnly | SqliteErrorKind::CannotOpen | SqliteErrorKind::Claimed => StoreErrorKind::Denied,
        SqliteErrorKind::TooLarge => StoreErrorKind::TooLarge,
        SqliteErrorKind::Schema => StoreErrorKind::Schema,
        SqliteErrorKind::Closed => StoreErrorKind::Stopped,
        _ => StoreErrorKind::Invalid,
    };
    StoreError::new(kind, store, action).with_advice(format!("{}; {}", error.message(), error.advice())).with_source(error)
}

/// A stored value that cannot be what was written.
pub(crate) fn corrupt(what: impl Into<String>) -> sqlx::Error {
    sqlx::Error::Decode(what.into().into())
}

/// A value that cannot be written.
pub(crate) fn unwritable(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}
