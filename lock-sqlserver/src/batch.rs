//! The requests that are sent, and what their answers mean.

use latchwork_core::lock::LockMode;
use latchwork_sqlserver_client::{
    Session, SqlServerError,
    driver::{ColumnData, Row, ToSql},
};
use std::{fmt::Write, sync::Arc, time::Duration};

/// The most acquires and releases of one request.
pub(crate) const MOST: usize = 50;
/// The most releases of one request when a provider stops; each is a parameter, of which there may be 2,100.
const MOST_RELEASES: usize = 1_000;

/// The smallest sign of life.
const HEARTBEAT: &str = "SELECT 1 AS alive";
const DATABASE: &str = "SELECT DB_NAME() AS name";
const TEST: &str = "SELECT APPLOCK_TEST(N'public', @P1, @P2, N'Session') AS grantable";
const MODE: &str = "SELECT APPLOCK_MODE(N'public', @P1, N'Session') AS mode";

/// One of the two things that are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Acquire(LockMode),
    Release,
}

impl Verb {
    /// The lock mode in SQL Server's words; no mode means release.
    fn as_str(self) -> &'static str {
        match self {
            Self::Acquire(LockMode::Exclusive) => "Exclusive",
            Self::Acquire(LockMode::Shared) => "Shared",
            Self::Release => "Release",
        }
    }
}

/// What the server answered to one of them.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The procedure's return code.
    pub(crate) code: i64,
    /// The number of the error it raised; 0 for none.
    pub(crate) error: i64,
    /// The text of that error.
    pub(crate) message: Option<String>,
    pub(crate) fence: Option<u64>,
}

impl Outcome {
    pub(crate) fn reason(&self) -> String {
        match &self.message {
            Some(message) => format!("return code {}, error {}: {message}", self.code, self.error),
            None => format!("return code {}", self.code),
        }
    }
}

/// A request of so many. Verbs and names are parameters, so that the server keeps one plan for each number of them.
fn text(count: usize, fence: Option<&str>) -> String {
    let mut text = String::from("SET NOCOUNT ON\nDECLARE @r int, @n int, @m nvarchar(2048), @t bigint\n");
    for number in 0..count {
        let (verb, name) = (2 * number + 1, 2 * number + 2);
        let _ = write!(
            text,
            "SELECT @r = -999, @n = 0, @m = NULL, @t = NULL\n\
             BEGIN TRY\n\
             IF @P{verb} = N'Release' EXEC @r = sp_releaseapplock @Resource = @P{name}, @LockOwner = N'Session'\n\
             ELSE BEGIN\n\
             EXEC @r = sp_getapplock @Resource = @P{name}, @LockMode = @P{verb}, @LockOwner = N'Session', @LockTimeout = 0\n"
        );
        if let Some(sequence) = fence {
            let _ = writeln!(text, "IF @r >= 0 SET @t = NEXT VALUE FOR {sequence}");
        }
        text.push_str(
            "END\n\
             END TRY\n\
             BEGIN CATCH SELECT @n = ERROR_NUMBER(), @m = ERROR_MESSAGE() END CATCH\n\
             SELECT @r AS code, @n AS error, @m AS message, @t AS fence\n",
        );
    }
    text
}

fn number(row: &Row, column: &str) -> Option<i64> {
    match row.get_column_data(column).ok()? {
        ColumnData::U8(value) => value.map(i64::from),
        ColumnData::I16(value) => value.map(i64::from),
        ColumnData::I32(value) => value.map(i64::from),
        ColumnData::I64(value) => *value,
        _ => None,
    }
}

fn first(results: &[Vec<Row>]) -> Option<&Row> {
    results.first().and_then(|rows| rows.first())
}

/// Asks all of them in one request.
///
/// # Errors
/// [`SqlServerError`]; nothing is known then of what was granted.
pub(crate) async fn ask(
    session: &mut Session,
    asked: &[(Verb, Arc<str>)],
    fence: Option<&str>,
    limit: Duration,
) -> Result<Vec<Outcome>, SqlServerError> {
    let values: Vec<&str> = asked.iter().flat_map(|(verb, name)| [verb.as_str(), &**name]).collect();
    let parameters: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
    let results = session.query(&text(asked.len(), fence), &parameters, limit).await?;
    let outcome = |rows: &Vec<Row>| {
        let row = rows.first()?;
        Some(Outcome {
            code: number(row, "code")?,
            error: number(row, "error").unwrap_or_default(),
            message: row.try_get::<&str, _>("message").ok()?.map(str::to_owned),
            fence: number(row, "fence").and_then(|fence| u64::try_from(fence).ok()),
        })
    };
    let outcomes: Option<Vec<Outcome>> = results.iter().map(outcome).collect();
    outcomes
        .filter(|outcomes| outcomes.len() == asked.len())
        .ok_or_else(|| SqlServerError::protocol("an answer that does not fit its request"))
}

/// Whether another session holds the name, so that a try of this mode cannot be granted.
pub(crate) async fn is_held_elsewhere(
    session: &mut Session,
    name: &str,
    mode: LockMode,
    limit: Duration,
) -> Result<bool, SqlServerError> {
    let results = session.query(TEST, &[&name, &Verb::Acquire(mode).as_str()], limit).await?;
    Ok(first(&results).and_then(|row| number(row, "grantable")) == Some(0))
}

/// Whether the session itself holds the name.
pub(crate) async fn is_held_here(session: &mut Session, name: &str, limit: Duration) -> Result<bool, SqlServerError> {
    let results = session.query(MODE, &[&name], limit).await?;
    let mode = first(&results).and_then(|row| row.try_get::<&str, _>("mode").ok().flatten());
    mode.map(|mode| mode != "NoLock").ok_or_else(|| SqlServerError::protocol("an answer without a lock mode"))
}

/// A request that frees so many.
fn release_text(count: usize) -> String {
    let mut text = String::from("SET NOCOUNT ON\nDECLARE @n int\n");
    for number in 1..=count {
        let _ = write!(
            text,
            "BEGIN TRY EXEC sp_releaseapplock @Resource = @P{number}, @LockOwner = N'Session' END TRY\n\
             BEGIN CATCH SET @n = ERROR_NUMBER() END CATCH\n"
        );
    }
    text.push_str("SELECT @n AS error");
    text
}

/// Frees all of these, each once for every time it is named.
pub(crate) async fn release_all(session: &mut Session, names: &[Arc<str>], limit: Duration) -> Result<(), SqlServerError> {
    for names in names.chunks(MOST_RELEASES) {
        let values: Vec<&str> = names.iter().map(|name| &**name).collect();
        let parameters: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
        let results = session.query(&release_text(names.len()), &parameters, limit).await?;
        if let Some(error) = first(&results).and_then(|row| number(row, "error")) {
            tracing::warn!(error, "a lock could not be freed as its provider stopped; it ends with the session");
        }
    }
    Ok(())
}

/// Asks for a sign of life.
pub(crate) async fn heartbeat(session: &mut Session, limit: Duration) -> Result<(), SqlServerError> {
    session.query(HEARTBEAT, &[], limit).await.map(drop)
}

/// The database that the session is in.
pub(crate) async fn database(session: &mut Session, limit: Duration) -> Result<String, SqlServerError> {
    let results = session.query(DATABASE, &[], limit).await?;
    let name = first(&results).and_then(|row| row.try_get::<&str, _>("name").ok().flatten());
    name.map(str::to_owned).ok_or_else(|| SqlServerError::protocol("an answer without a database"))
}

fn draw_text(sequence: &str) -> String {
    format!("SELECT NEXT VALUE FOR {sequence} AS fence")
}

/// Draws a number from the sequence, to see that it is there.
pub(crate) async fn draw(session: &mut Session, sequence: &str, limit: Duration) -> Result<(), SqlServerError> {
    let results = session.query(&draw_text(sequence), &[], limit).await?;
    match first(&results).and_then(|row| number(row, "fence")) {
        Some(0..) => Ok(()),
        _ => Err(SqlServerError::protocol(format!("the sequence {sequence} does not yield positive numbers of the type bigint"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_testkit::sqlserver::grammar::{self, Exception};

    #[test]
    fn all_that_is_sent_is_transact_sql() {
        let sequence = "[dbo].[fence]";
        let statements = [
            ("heartbeat", HEARTBEAT.to_owned()),
            ("database", DATABASE.to_owned()),
            ("test", TEST.to_owned()),
            ("mode", MODE.to_owned()),
            ("draw", draw_text(sequence)),
            ("one", text(1, None)),
            ("most, fenced", text(MOST, Some(sequence))),
            ("releases", release_text(MOST_RELEASES)),
        ];
        let exceptions = [
            Exception::new("EXEC @r = ", "EXEC ", "the parser knows no return code of a procedure"),
            Exception::new("NEXT VALUE FOR [dbo].[fence]", "1", "the parser knows no value of a sequence"),
        ];
        assert_eq!(grammar::check(statements, &exceptions), Ok(()));
    }
}
