//! Rows on their way into the database: JSON arrays that `jsonb_each` takes apart, so that one statement writes any number.

use crate::sql::Sql;
use latchwork_core::limits::STATEMENT_ROWS;
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::fmt::Write;

/// What a few rows take, so that a small statement needs one allocation.
const FIRST_BYTES: usize = 1_024;

/// Rows of one statement.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    full: Vec<String>,
    json: String,
    count: usize,
}

impl Rows {
    /// Adds the row that `write` fills.
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Row<'_>)) {
        if self.json.is_empty() {
            self.json.reserve(FIRST_BYTES);
        }
        if self.count == STATEMENT_ROWS {
            self.json.push(']');
            self.full.push(std::mem::take(&mut self.json));
            self.count = 0;
        }
        self.json.push(if self.count == 0 { '[' } else { ',' });
        self.json.push('[');
        write(&mut Row { json: &mut self.json, first: true });
        self.json.push(']');
        self.count += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One JSON array per statement.
    pub(crate) fn into_batches(mut self) -> Vec<String> {
        if self.count > 0 {
            self.json.push(']');
            self.full.push(self.json);
        }
        self.full
    }

    /// Runs the statement for all rows: they are its `?1`, `other` (mostly the time) is its `?2`.
    pub(crate) async fn execute(
        self,
        connection: &mut SqliteConnection,
        sql: &Sql,
        statement: &'static str,
        other: i64,
    ) -> Result<(), sqlx::Error> {
        for batch in self.into_batches() {
            sqlx::query(sql.get(statement)).bind(batch).bind(other).execute(&mut *connection).await?;
        }
        Ok(())
    }

    /// As [`execute`](Self::execute), and gives the rows that the statement returns.
    pub(crate) async fn fetch<T>(
        self,
        connection: &mut SqliteConnection,
        sql: &Sql,
        statement: &'static str,
        other: i64,
    ) -> Result<Vec<T>, sqlx::Error>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow> + Send + Unpin,
    {
        let mut found = Vec::new();
        for batch in self.into_batches() {
            found.extend(sqlx::query_as(sql.get(statement)).bind(batch).bind(other).fetch_all(&mut *connection).await?);
        }
        Ok(found)
    }
}

/// Several statements that go to the driver's thread in one piece, since each way there and back costs as much as a few rows.
#[derive(Debug)]
pub(crate) struct Bundle {
    other: i64,
    text: String,
    batches: Vec<String>,
}

impl Bundle {
    /// An empty bundle; `other` (the time) is the `?2` of all its statements.
    pub(crate) fn new(other: i64) -> Self {
        Self { other, text: String::new(), batches: Vec::new() }
    }

    /// Adds a statement for these rows, which are its `?1`. Nothing without rows.
    pub(crate) fn add(&mut self, statement: &'static str, rows: Rows) {
        for batch in rows.into_batches() {
            self.batches.push(batch);
            // The first parameter of the bundle is `other`, then come the rows of each statement. A statement that names `?4` has
            // four parameters for the driver, one that names `$4` has one.
            let rows = self.batches.len() + 1;
            for (at, piece) in statement.split('?').enumerate() {
                match (at, piece.strip_prefix('1'), piece.strip_prefix('2')) {
                    (0, ..) => self.text.push_str(piece),
                    (_, Some(rest), _) => {
                        write!(self.text, "${rows}{rest}").ok();
                    }
                    (_, None, Some(rest)) => {
                        write!(self.text, "$1{rest}").ok();
                    }
                    (_, None, None) => {
                        write!(self.text, "?{piece}").ok();
                    }
                }
            }
            self.text.push(';');
        }
    }

    /// Runs the statements in order.
    pub(crate) async fn execute(self, connection: &mut SqliteConnection, sql: &Sql) -> Result<(), sqlx::Error> {
        // None of them returns rows, so any type will do.
        self.fetch::<(i64,)>(connection, sql).await.map(|_| ())
    }

    /// Runs the statements in order, and gives the rows of the one that returns any.
    pub(crate) async fn fetch<T>(self, connection: &mut SqliteConnection, sql: &Sql) -> Result<Vec<T>, sqlx::Error>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow> + Send + Unpin,
    {
        if self.batches.is_empty() {
            return Ok(Vec::new());
        }
        let mut query = sqlx::query_as(sql.made(&self.text)).bind(self.other);
        for batch in self.batches {
            query = query.bind(batch);
        }
        query.fetch_all(connection).await
    }
}

/// One row that is being written.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    json: &'a mut String,
    first: bool,
}

impl Row<'_> {
    fn next(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.json.push(',');
        }
    }

    pub(crate) fn int(&mut self, value: i64) -> &mut Self {
        self.next();
        // Writing to a string cannot fail.
        write!(self.json, "{value}").ok();
        self
    }

    pub(crate) fn opt_int(&mut self, value: Option<i64>) -> &mut Self {
        match value {
            Some(value) => self.int(value),
            None => self.null(),
        }
    }

    pub(crate) fn float(&mut self, value: f64) -> &mut Self {
        if value.is_finite() {
            self.next();
            write!(self.json, "{value:?}").ok();
            self
        } else {
            // JSON has no word for it, and it compares with nothing.
            self.null()
        }
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.next();
        quote(self.json, value);
        self
    }

    pub(crate) fn opt_text(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    /// The text that a value shows itself by, which must need no escapes: an id.
    pub(crate) fn id(&mut self, value: &impl std::fmt::Display) -> &mut Self {
        self.next();
        write!(self.json, "\"{value}\"").ok();
        self
    }

    pub(crate) fn opt_id<T: std::fmt::Display>(&mut self, value: Option<&T>) -> &mut Self {
        match value {
            Some(value) => self.id(value),
            None => self.null(),
        }
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.next();
        self.json.push_str("null");
        self
    }
}

/// Appends a text as a JSON string.
fn quote(json: &mut String, text: &str) {
    json.push('"');
    let mut clean = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            0 => "\\u0000",
            1..0x20 => "",
            _ => continue,
        };
        // An escaped byte is ASCII, so both ends are character boundaries.
        json.push_str(text.get(clean..at).unwrap_or_default());
        if escape.is_empty() {
            write!(json, "\\u{byte:04x}").ok();
        } else {
            json.push_str(escape);
        }
        clean = at + 1;
    }
    json.push_str(text.get(clean..).unwrap_or_default());
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_json_whatever_stands_in_it() {
        let texts = ["", "plain", "quote \" and \\ back", "line\nfeed\ttab\r\u{1}\u{0}", "zażółć \u{2028}"];
        let mut rows = Rows::default();
        for text in texts {
            rows.add(|row| {
                row.text(text).int(-7).opt_int(None).opt_text(None).float(1e300).float(f64::NAN).id(&7);
            });
        }
        let batches = rows.into_batches();
        assert_eq!(batches.len(), 1);
        let read: Vec<serde_json::Value> = serde_json::from_str(&batches[0]).expect("JSON");
        for (row, text) in read.iter().zip(texts) {
            assert_eq!(*row, serde_json::json!([text, -7, null, null, 1e300, null, "7"]));
        }
    }

    #[test]
    fn the_statements_of_a_bundle_have_parameters_of_their_own() {
        let rows = |number| {
            let mut rows = Rows::default();
            rows.add(|row| {
                row.int(number);
            });
            rows
        };
        let mut bundle = Bundle::new(7);
        bundle.add("A ?1 AND ?2", rows(1));
        bundle.add("nothing ?1", Rows::default());
        bundle.add("B ?1, ?1", rows(2));
        assert_eq!(bundle.text, "A $2 AND $1;B $3, $3;");
        assert_eq!(bundle.batches, ["[[1]]", "[[2]]"]);
    }

    #[test]
    fn many_rows_become_several_statements() {
        let mut rows = Rows::default();
        assert!(rows.is_empty());
        for number in 0..4_001 {
            rows.add(|row| {
                row.int(number);
            });
        }
        let batches = rows.into_batches();
        let lengths: Vec<_> =
            batches.iter().map(|batch| serde_json::from_str::<Vec<[i64; 1]>>(batch).expect("JSON").len()).collect();
        assert_eq!(lengths, [2_000, 2_000, 1]);
    }
}
