//! The requests that are sent, and what their answers mean.

use latchwork_core::lock::LockMode;
use latchwork_sqlserver_client::{
    Session, SqlServerError,
    driver::{ColumnData, Row},
};
use std::{sync::Arc, time::Duration};

/// The most acquires and releases of one request.
pub(crate) const MOST: usize = 100;
/// The most releases of one request when a provider stops.
const MOST_RELEASES: usize = 1_000;

/// The smallest sign of life.
const HEARTBEAT: &str = "SELECT 1 AS alive";
const DATABASE: &str = "SELECT DB_NAME() AS name, LEN(@P1) AS units";
const TEST: &str = "SELECT APPLOCK_TEST(N'public', @P1, @P2, N'Session') AS grantable";
const MODE: &str = "SELECT APPLOCK_MODE(N'public', @P1, N'Session') AS mode";

/// What is asked, in the order in which the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Release,
    Exclusive,
    Shared,
}

impl From<LockMode> for Verb {
    fn from(mode: LockMode) -> Self {
        match mode {
            LockMode::Exclusive => Self::Exclusive,
            LockMode::Shared => Self::Shared,
        }
    }
}

/// How the server counts a text; a database's collation decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Units of UTF-16: what is beyond the first 65,536 characters is two.
    Units,
    /// Each character is one.
    Characters,
}

impl Counting {
    fn length(self, text: &str) -> usize {
        match self {
            Self::Units => text.encode_utf16().count(),
            Self::Characters => text.chars().count(),
        }
    }
}

/// What the server answered to one of them.
#[derive(Clone, Debug, Default)]
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

/// A request of any number: one text, so that the server parses and plans it once for all.
///
/// `@P1` has the names, each filled up with spaces to a width of `@P2`; a name never ends with one. Up to `@P3` they are to be freed,
/// from there up to `@P4` to be taken for one alone, from there up to `@P5` to be shared. What is not told of went well: a row says
/// which code another one got, with the error if there was one, or which number its grant. The last row says how many were asked.
///
/// An error leaves the inner loop, is told, and the outer loop goes on behind it: a block that catches costs as much as a lock on
/// some servers, and so there is one for all.
fn text(fence: Option<&str>) -> String {
    let numbered =
        fence.map_or_else(String::new, |sequence| format!("IF @r >= 0 SELECT @i AS item, NEXT VALUE FOR {sequence} AS fence;\n"));
    format!(
        "SET NOCOUNT ON;\n\
         DECLARE @i int = 0, @n nvarchar(255), @m nvarchar(9) = N'Exclusive', @r int;\n\
         WHILE @i < @P5\n\
         BEGIN\n\
         BEGIN TRY\n\
         WHILE @i < @P5\n\
         BEGIN\n\
         SELECT @n = RTRIM(SUBSTRING(@P1, @i * @P2 + 1, @P2)), @r = -999;\n\
         SET @i = @i + 1;\n\
         IF @i > @P4 SET @m = N'Shared';\n\
         IF @i <= @P3 EXEC @r = sp_releaseapplock @Resource = @n, @LockOwner = N'Session';\n\
         ELSE BEGIN\n\
         EXEC @r = sp_getapplock @Resource = @n, @LockMode = @m, @LockOwner = N'Session', @LockTimeout = 0;\n\
         {numbered}\
         END;\n\
         IF @r <> 0 SELECT @i AS item, @r AS code;\n\
         END;\n\
         END TRY\n\
         BEGIN CATCH SELECT @i AS item, @r AS code, ERROR_NUMBER() AS error, ERROR_MESSAGE() AS message; END CATCH;\n\
         END;\n\
         SELECT @i AS done"
    )
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

/// Asks all of them in one request. The server frees first, whatever their order.
///
/// # Errors
/// [`SqlServerError`]; nothing is known then of what was granted.
pub(crate) async fn ask(
    session: &mut Session,
    asked: &[(Verb, Arc<str>)],
    fence: Option<&str>,
    counting: Counting,
    limit: Duration,
) -> Result<Vec<Outcome>, SqlServerError> {
    let unfitting = || SqlServerError::protocol("an answer that does not fit its request");
    let mut order: Vec<usize> = (0..asked.len()).collect();
    order.sort_by_key(|place| asked.get(*place).map(|(verb, _)| *verb));
    let up_to = |last: Verb| asked.iter().filter(|(verb, _)| *verb <= last).count();
    let width = asked.iter().map(|(_, name)| counting.length(name)).max().unwrap_or_default();
    let mut names = String::new();
    for (_, name) in order.iter().filter_map(|place| asked.get(*place)) {
        names.push_str(name);
        names.extend(std::iter::repeat_n(' ', width - counting.length(name)));
    }
    let [width, releases, exclusive, all] = [width, up_to(Verb::Release), up_to(Verb::Exclusive), asked.len()]
        .map(|number| i32::try_from(number).unwrap_or(i32::MAX));
    let results = session.query(&text(fence), &[&names, &width, &releases, &exclusive, &all], limit).await?;
    let mut outcomes = vec![Outcome::default(); asked.len()];
    let mut done = None;
    for row in results.iter().flatten() {
        let Some(item) = number(row, "item") else {
            done = number(row, "done");
            continue;
        };
        let place = usize::try_from(item - 1).ok().and_then(|item| order.get(item));
        let outcome = place.and_then(|place| outcomes.get_mut(*place)).ok_or_else(unfitting)?;
        match number(row, "fence") {
            Some(fence) => outcome.fence = u64::try_from(fence).ok(),
            None => {
                outcome.code = number(row, "code").ok_or_else(unfitting)?;
                outcome.error = number(row, "error").unwrap_or_default();
                outcome.message = row.try_get::<&str, _>("message").ok().flatten().map(str::to_owned);
            }
        }
    }
    if done == Some(all.into()) { Ok(outcomes) } else { Err(unfitting()) }
}

/// Whether another session holds the name, so that a try of this mode cannot be granted.
pub(crate) async fn is_held_elsewhere(
    session: &mut Session,
    name: &str,
    mode: LockMode,
    limit: Duration,
) -> Result<bool, SqlServerError> {
    let mode = match mode {
        LockMode::Exclusive => "Exclusive",
        LockMode::Shared => "Shared",
    };
    let results = session.query(TEST, &[&name, &mode], limit).await?;
    Ok(first(&results).and_then(|row| number(row, "grantable")) == Some(0))
}

/// Whether the session itself holds the name.
pub(crate) async fn is_held_here(session: &mut Session, name: &str, limit: Duration) -> Result<bool, SqlServerError> {
    let results = session.query(MODE, &[&name], limit).await?;
    let mode = first(&results).and_then(|row| row.try_get::<&str, _>("mode").ok().flatten());
    mode.map(|mode| mode != "NoLock").ok_or_else(|| SqlServerError::protocol("an answer without a lock mode"))
}

/// Frees all of these, each once for every time it is named.
pub(crate) async fn release_all(
    session: &mut Session,
    names: &[Arc<str>],
    counting: Counting,
    limit: Duration,
) -> Result<(), SqlServerError> {
    for names in names.chunks(MOST_RELEASES) {
        let asked: Vec<_> = names.iter().map(|name| (Verb::Release, name.clone())).collect();
        let outcomes = ask(session, &asked, None, counting, limit).await?;
        for (name, outcome) in names.iter().zip(outcomes).filter(|(_, outcome)| outcome.code != 0) {
            let reason = outcome.reason();
            tracing::warn!(%name, %reason, "a lock could not be freed as its provider stopped; it ends with the session");
        }
    }
    Ok(())
}

/// Asks for a sign of life.
pub(crate) async fn heartbeat(session: &mut Session, limit: Duration) -> Result<(), SqlServerError> {
    session.query(HEARTBEAT, &[], limit).await.map(drop)
}

/// The database that the session is in, and how it counts.
pub(crate) async fn database(session: &mut Session, limit: Duration) -> Result<(String, Counting), SqlServerError> {
    let results = session.query(DATABASE, &[&"\u{10000}"], limit).await?;
    let row = first(&results);
    let name = row.and_then(|row| row.try_get::<&str, _>("name").ok().flatten());
    let counting = match row.and_then(|row| number(row, "units")) {
        Some(1) => Some(Counting::Characters),
        Some(2) => Some(Counting::Units),
        _ => None,
    };
    let known = name.map(str::to_owned).zip(counting);
    known.ok_or_else(|| SqlServerError::protocol("an answer without a database, or without the length of a text"))
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
            ("ask", text(None)),
            ("ask, fenced", text(Some(sequence))),
        ];
        let exceptions = [
            Exception::new("EXEC @r = ", "EXEC ", "the parser knows no return code of a procedure"),
            Exception::new("BEGIN TRY\n", "", "the parser knows no TRY within a block"),
            Exception::new("END TRY\nBEGIN CATCH ", "", "the parser knows no CATCH within a block"),
            Exception::new(" END CATCH;", "", "the parser knows no CATCH within a block"),
            Exception::new("NEXT VALUE FOR [dbo].[fence]", "1", "the parser knows no value of a sequence"),
        ];
        assert_eq!(grammar::check(statements, &exceptions), Ok(()));
    }
}
