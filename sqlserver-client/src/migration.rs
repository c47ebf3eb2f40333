//! Versioned schemas: one table of the schema notes which migrations of which set a database has.

use crate::{SchemaName, Session, SqlServerError, SqlServerOptions};
use sha2::{Digest, Sha256};
use std::{fmt::Write, time::Duration};

/// Longest time to wait for another node that migrates.
const TURN: Duration = Duration::from_secs(60);

/// What may be done to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SchemaMode {
    /// Create the schema where there is none of it; refuse an older one.
    CreateIfMissing,
    /// Create it, or bring an older one up to date.
    #[default]
    Migrate,
    /// Change nothing: refuse a schema that is not up to date.
    Verify,
}

/// One step of a schema's history. Once published it never changes: its checksum is kept in the database.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The version that it leads to, ascending from 1.
    pub version: i32,
    /// What it is about; at most 200 letters.
    pub name: &'static str,
    /// Its statements, for the schema `[latchwork]`, in batches that are separated by lines of `GO`.
    pub sql: &'static str,
}

impl Migration {
    fn checksum(&self) -> String {
        Sha256::digest(self.sql.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// The whole history of one crate's tables in a schema, under a name that no other crate uses there.
#[derive(Clone, Debug)]
pub struct MigrationSet {
    schema: SchemaName,
    name: &'static str,
    migrations: &'static [Migration],
}

const CREATE_SCHEMA: &str = "IF SCHEMA_ID(N'[latchwork]') IS NULL EXEC(N'CREATE SCHEMA [latchwork]');";

const CREATE_TABLE: &str = "
IF OBJECT_ID(N'[latchwork].[migration]', N'U') IS NULL
CREATE TABLE [latchwork].[migration] (
    [set_name] varchar(50) NOT NULL,
    [version] int NOT NULL,
    [name] nvarchar(200) NOT NULL,
    [checksum] char(64) NOT NULL,
    [applied_at] datetime2(3) NOT NULL,
    PRIMARY KEY ([set_name], [version])
);";

const TABLE_EXISTS: &str = "SELECT CAST(OBJECT_ID(N'[latchwork].[migration]', N'U') AS int) AS [id];";

// By the primary key.
const APPLIED: &str = "SELECT [version], [checksum] FROM [latchwork].[migration] WHERE [set_name] = @P1 ORDER BY [version];";

/// Waits for its turn, `@P2` milliseconds.
const LOCK: &str = "
DECLARE @code int;
EXEC @code = sp_getapplock @Resource = @P1, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = @P2;
SELECT @code AS [code];";

impl MigrationSet {
    /// A set of migrations, which ascend by version without a gap.
    #[must_use]
    pub fn new(schema: SchemaName, name: &'static str, migrations: &'static [Migration]) -> Self {
        Self { schema, name, migrations }
    }

    /// The migrations, by version.
    #[must_use]
    pub fn migrations(&self) -> &[Migration] {
        self.migrations
    }

    /// The version that the last migration leads to; 0 for an empty set.
    #[must_use]
    pub fn version(&self) -> i32 {
        self.migrations.last().map_or(0, |last| last.version)
    }

    /// Everything as a script for `sqlcmd`, for a DBA who brings a database from version `from` (0: nothing of it is there) to this one.
    #[must_use]
    pub fn script(&self, from: i32) -> String {
        let mut script = format!("-- {} of Latchwork, from version {from} to version {}\n", self.name, self.version());
        script.push_str("SET XACT_ABORT ON;\nBEGIN TRANSACTION;\nGO\n");
        for batch in [CREATE_SCHEMA, CREATE_TABLE].map(|sql| self.here(sql)) {
            let _ = writeln!(script, "{}\nGO", batch.trim());
        }
        for migration in self.migrations.iter().filter(|migration| migration.version > from) {
            for batch in batches(migration.sql) {
                let _ = writeln!(script, "{}\nGO", self.schema.apply(batch).trim());
            }
            let _ = writeln!(script, "{}\nGO", self.note(migration));
        }
        script.push_str("COMMIT TRANSACTION;\nGO\n");
        script
    }

    /// Brings the tables to what this program needs, as far as `mode` allows, and gives their version.
    ///
    /// All in one transaction, under an application lock: any number of nodes can call it at once, and one of them does the work.
    ///
    /// # Errors
    /// [`SqlServerError::Schema`] when the database has a newer version, another history, or an older version that `mode` does not
    /// allow to change; others from the server, for example when the right to create tables is missing.
    pub async fn migrate(&self, options: &SqlServerOptions, mode: SchemaMode) -> Result<i32, SqlServerError> {
        // A session of its own: its end frees the application lock, whatever happens.
        let mut session = Session::open(options).await?;
        let limit = options.request_timeout;
        let applied = self.applied(&mut session, limit).await?;
        if self.missing(&applied)?.is_empty() {
            return Ok(self.version());
        }
        let allowed = match mode {
            SchemaMode::Migrate => true,
            SchemaMode::CreateIfMissing => applied.is_empty(),
            SchemaMode::Verify => false,
        };
        if !allowed {
            let found = match applied.last() {
                None => "the database has none of it".to_owned(),
                Some((version, _)) => format!("the database has the older version {version}"),
            };
            return Err(self.refuse(&format!("{found}, and changing it is not allowed here ({mode:?})")));
        }
        self.lock(&mut session).await?;
        // Another node may have done it while this one waited.
        let applied = self.applied(&mut session, limit).await?;
        let missing = self.missing(&applied)?;
        if missing.is_empty() {
            return Ok(self.version());
        }
        session.batch("SET XACT_ABORT ON; BEGIN TRANSACTION;", limit).await?;
        for batch in [CREATE_SCHEMA, CREATE_TABLE].map(|sql| self.here(sql)) {
            session.batch(&batch, limit).await?;
        }
        for migration in missing {
            tracing::info!(set = self.name, version = migration.version, name = migration.name, "migrating the schema");
            for batch in batches(migration.sql) {
                session.batch(&self.schema.apply(batch), limit).await.map_err(|error| self.failed(migration, error))?;
            }
            session.batch(&self.note(migration), limit).await?;
        }
        session.batch("COMMIT TRANSACTION;", limit).await?;
        Ok(self.version())
    }

    fn here(&self, sql: &str) -> String {
        // `SCHEMA_ID` takes the bare name.
        sql.replace("SCHEMA_ID(N'[latchwork]')", &format!("SCHEMA_ID(N'{}')", self.schema))
            .replace("[latchwork]", &format!("[{}]", self.schema))
    }

    /// Constants of this crate's callers and hexadecimal digits, but for quotes in a name nothing that could end the text.
    fn note(&self, migration: &Migration) -> String {
        let name = migration.name.replace('\'', "''");
        self.here(&format!(
            "INSERT INTO [latchwork].[migration] ([set_name], [version], [name], [checksum], [applied_at])\n\
             VALUES ('{}', {}, N'{name}', '{}', SYSUTCDATETIME());",
            self.name,
            migration.version,
            migration.checksum()
        ))
    }

    async fn lock(&self, session: &mut Session) -> Result<(), SqlServerError> {
        let resource = format!("latchwork:migrate:{}", self.schema);
        let wait = i32::try_from(TURN.as_millis()).unwrap_or(i32::MAX);
        let results = session.query(LOCK, &[&resource, &wait], TURN + Duration::from_secs(5)).await?;
        let code: Option<i32> = results.first().and_then(|rows| rows.first()).and_then(|row| row.get("code"));
        match code {
            Some(0..) => Ok(()),
            code => Err(self.refuse(&format!("another node is migrating and did not end within {TURN:?} (code {code:?})"))),
        }
    }

    async fn applied(&self, session: &mut Session, limit: Duration) -> Result<Vec<(i32, String)>, SqlServerError> {
        let found = session.query(&self.here(TABLE_EXISTS), &[], limit).await?;
        let exists: Option<i32> = found.first().and_then(|rows| rows.first()).and_then(|row| row.get("id"));
        if exists.is_none() {
            return Ok(Vec::new());
        }
        let found = session.query(&self.here(APPLIED), &[&self.name], limit).await?;
        let rows = found.into_iter().flatten();
        rows.map(|row| match (row.get::<i32, _>("version"), row.get::<&str, _>("checksum")) {
            (Some(version), Some(checksum)) => Ok((version, checksum.to_owned())),
            _ => Err(self.refuse("its history cannot be read")),
        })
        .collect()
    }

    /// Compares with what the database has and gives what is missing.
    fn missing(&self, applied: &[(i32, String)]) -> Result<&'static [Migration], SqlServerError> {
        if let Some((newest, _)) = applied.last().filter(|(newest, _)| *newest > self.version()) {
            return Err(self.refuse(&format!("the database has the newer version {newest}")));
        }
        for (version, checksum) in applied {
            match self.migrations.iter().find(|migration| migration.version == *version) {
                Some(migration) if migration.checksum() == *checksum => {}
                _ => {
                    return Err(self.refuse(&format!("version {version} was made there by other statements than this program's")));
                }
            }
        }
        // A history is applied in order, so that what is missing is its end.
        Ok(self.migrations.get(applied.len()..).unwrap_or_default())
    }

    fn refuse(&self, why: &str) -> SqlServerError {
        SqlServerError::Schema {
            reason: format!(
                "{} in the schema `{}`: this program needs version {}; {why}",
                self.name,
                self.schema,
                self.version()
            ),
        }
    }

    fn failed(&self, migration: &Migration, error: SqlServerError) -> SqlServerError {
        match error {
            SqlServerError::Server { number, class, message } => {
                let message = format!("{} in the schema `{}`, version {}: {message}", self.name, self.schema, migration.version);
                SqlServerError::Server { number, class, message }
            }
            error => error,
        }
    }
}

/// The batches of a script: what stands between lines of `GO`.
fn batches(sql: &str) -> impl Iterator<Item = &str> {
    sql.split("\nGO\n").map(str::trim).filter(|batch| !batch.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Migration] = &[
        Migration {
            version: 1,
            name: "tables",
            sql: "CREATE TABLE [latchwork].[a] (i int);\nGO\nCREATE TABLE [latchwork].[b] (i int);\n",
        },
        Migration { version: 2, name: "more", sql: "CREATE TABLE [latchwork].[c] (i int);" },
    ];

    fn set(migrations: &'static [Migration]) -> MigrationSet {
        MigrationSet::new(SchemaName::new("x").expect("valid"), "store", migrations)
    }

    #[test]
    fn what_is_missing_is_the_end_of_the_history() {
        let sums: Vec<(i32, String)> = TWO.iter().map(|migration| (migration.version, migration.checksum())).collect();
        let missing =
            |applied: &[(i32, String)]| set(TWO).missing(applied).map(|missing| missing.len()).map_err(|error| error.to_string());
        assert_eq!(missing(&[]), Ok(2));
        assert_eq!(missing(&sums[..1]), Ok(1));
        assert_eq!(missing(&sums), Ok(0));
        assert!(missing(&[(1, "other".to_owned())]).is_err_and(|error| error.contains("other statements")));
        assert!(missing(&[(3, String::new())]).is_err_and(|error| error.contains("newer version 3")));
    }

    #[test]
    fn the_script_has_all_batches_in_the_schema_and_notes_them() {
        let script = set(TWO).script(0);
        assert!(!script.contains("latchwork]"), "{script}");
        assert!(script.contains("SCHEMA_ID(N'x')"), "{script}");
        assert_eq!(script.matches("\nGO\n").count(), 9);
        assert_eq!(script.matches("INSERT INTO [x].[migration]").count(), 2);
        let script = set(TWO).script(1);
        assert!(!script.contains("[a]") && script.contains("[c]"), "{script}");
    }

    #[test]
    fn all_that_is_sent_is_transact_sql() {
        use latchwork_testkit::sqlserver::grammar::{self, Exception};
        let script = set(TWO).script(0);
        let scripted = batches(&script).map(|batch| ("script", batch));
        let statements = [("table", TABLE_EXISTS), ("applied", APPLIED), ("lock", LOCK)].into_iter().chain(scripted);
        let exceptions = [Exception::new("EXEC @code = ", "EXEC ", "the parser knows no return code of a procedure")];
        assert_eq!(grammar::check(statements, &exceptions), Ok(()));
    }
}
