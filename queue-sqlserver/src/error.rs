use latchwork_core::queue::QueueError;
use latchwork_sqlserver_client::SqlServerError;

pub(crate) const PROVIDER: &str = "sqlserver";

/// An error of the server while it should `action`.
pub(crate) fn failed(action: impl Into<String>, error: SqlServerError) -> QueueError {
    match error {
        SqlServerError::Stopped => stopped(),
        error if error.is_transient() => QueueError::unavailable(PROVIDER, action, error),
        error => QueueError::refused(PROVIDER, action, error),
    }
}

pub(crate) fn stopped() -> QueueError {
    QueueError::stopped(PROVIDER)
}
