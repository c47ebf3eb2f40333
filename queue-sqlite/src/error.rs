use latchwork_core::queue::QueueError;
use latchwork_sqlite_client::SqliteError;

pub(crate) const PROVIDER: &str = "sqlite";

/// An error of the file while it should `action`.
pub(crate) fn failed(action: impl Into<String>, error: SqliteError) -> QueueError {
    if error.is_retryable() {
        QueueError::unavailable(PROVIDER, action, error)
    } else {
        QueueError::refused(PROVIDER, action, error)
    }
}

pub(crate) fn stopped() -> QueueError {
    QueueError::stopped(PROVIDER)
}
