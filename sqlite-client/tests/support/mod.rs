//! What the tests share: a lane that inserts rows, and children of this test program.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use latchwork_sqlite_client::{Migration, MigrationSet, SchemaMode, SqliteClient, SqliteOptions, WriteBatch};

/// A row to be written; `name` is unique in the table and must not be longer than 20 bytes.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) body: String,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), body: String::new() }
    }

    pub(crate) fn with_body(mut self, body: String) -> Self {
        self.body = body;
        self
    }
}

/// Inserts all rows of a batch by one statement, and answers with how many were in the batch.
#[derive(Debug)]
pub(crate) struct Insert;

impl WriteBatch for Insert {
    type Item = Row;
    type Answer = usize;

    async fn run(&self, connection: &mut SqliteConnection, rows: &[Row]) -> Result<Vec<usize>, sqlx::Error> {
        let json: Vec<_> = rows.iter().map(|row| serde_json::json!([row.name, row.body])).collect();
        let json = serde_json::to_string(&json).map_err(|error| sqlx::Error::Encode(error.into()))?;
        sqlx::query("INSERT INTO item (name, body) SELECT value ->> 0, value ->> 1 FROM json_each(?1)")
            .bind(json)
            .execute(connection)
            .await?;
        Ok(vec![rows.len(); rows.len()])
    }

    fn bytes(&self, row: &Row) -> usize {
        row.name.len() + row.body.len()
    }
}

pub(crate) fn schema() -> MigrationSet {
    MigrationSet::new(
        "test",
        vec![Migration::new(
            1,
            "items",
            "CREATE TABLE item (name TEXT NOT NULL PRIMARY KEY CHECK (length(name) <= 20), body TEXT NOT NULL) STRICT",
        )],
    )
}

pub(crate) async fn open(options: SqliteOptions) -> SqliteClient {
    let client = SqliteClient::open(options).await.expect("the file opens");
    client.migrate(&schema(), SchemaMode::Migrate).await.expect("the schema is made");
    client
}

pub(crate) async fn count(client: &SqliteClient) -> i64 {
    client
        .read(|connection| Box::pin(sqlx::query_scalar("SELECT count(*) FROM item").fetch_one(connection)))
        .await
        .expect("the rows are counted")
}

/// The name of the file that a child process works on.
const FILE: &str = "LATCHWORK_TEST_FILE";

/// Starts the ignored test `name` of this program as a process of its own.
pub(crate) fn spawn(name: &str, file: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("this program starts again")
}

/// The file of a child process; `None` when the test was not started by [`spawn`].
pub(crate) fn child_file() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}
