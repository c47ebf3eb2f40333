//! Versioned schemas: one table notes which migrations of which set a file has.

use std::borrow::Cow;
use std::fmt;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqliteConnection};

use crate::{SqliteClient, SqliteError, SqliteErrorKind};

/// What may be done to the schema of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SchemaMode {
    /// Create the schema in a file that has none of it; refuse an older one.
    CreateIfMissing,
    /// Create it, or bring an older one up to date.
    #[default]
    Migrate,
    /// Change nothing: refuse a file that is not up to date.
    Verify,
}

/// One step of a schema's history. Once published it never changes: its checksum is kept in the file.
#[derive(Debug, Clone)]
pub struct Migration {
    version: i64,
    name: Cow<'static, str>,
    sql: Cow<'static, str>,
}

impl Migration {
    /// The step to `version` (ascending from 1) by the statements in `sql`.
    pub fn new(version: i64, name: impl Into<Cow<'static, str>>, sql: impl Into<Cow<'static, str>>) -> Self {
        Self { version, name: name.into(), sql: sql.into() }
    }

    /// The version that it leads to.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Its statements.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    fn checksum(&self) -> Vec<u8> {
        let migration = sqlx::migrate::Migration::new(
            self.version,
            self.name.clone(),
            sqlx::migrate::MigrationType::Simple,
            AssertSqlSafe(self.sql.to_string()).into_sql_str(),
            false,
        );
        migration.checksum.into_owned()
    }
}

/// The whole history of one crate's schema, under a name that no other crate uses in the same file.
#[derive(Debug, Clone)]
pub struct MigrationSet {
    name: String,
    migrations: Vec<Migration>,
}

impl MigrationSet {
    /// A set of migrations, sorted by version.
    pub fn new(name: impl Into<String>, mut migrations: Vec<Migration>) -> Self {
        migrations.sort_by_key(|migration| migration.version);
        Self { name: name.into(), migrations }
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The migrations, by version.
    pub fn migrations(&self) -> &[Migration] {
        &self.migrations
    }

    /// The version that the last migration leads to; 0 for an empty set.
    pub fn version(&self) -> i64 {
        self.migrations.last().map_or(0, |last| last.version)
    }

    /// Compares with what the file has and returns what is missing.
    fn missing(&self, applied: &[(i64, Vec<u8>)]) -> Result<&[Migration], Mismatch> {
        let newest = applied.iter().map(|(version, _)| *version).max();
        if let Some(found) = newest.filter(|newest| *newest > self.version()) {
            return Err(Mismatch::Newer { found });
        }
        for (version, checksum) in applied {
            match self.migrations.iter().find(|migration| migration.version == *version) {
                Some(migration) if migration.checksum() == *checksum => {}
                _ => return Err(Mismatch::Different { version: *version }),
            }
        }
        // A history is applied in order, so that what is missing is its end.
        Ok(self.migrations.get(applied.len()..).unwrap_or_default())
    }
}

enum Mismatch {
    Newer { found: i64 },
    Different { version: i64 },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { found } => write!(f, "the file has the newer version {found}"),
            Self::Different { version } => {
                write!(f, "version {version} in the file was made by other statements than this program's")
            }
        }
    }
}

const CREATE_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS latchwork_migrations (
        set_name   TEXT    NOT NULL,
        version    INTEGER NOT NULL,
        name       TEXT    NOT NULL,
        checksum   BLOB    NOT NULL,
        applied_at INTEGER NOT NULL, -- microseconds since 1970, UTC
        PRIMARY KEY (set_name, version)
    ) STRICT, WITHOUT ROWID";

const TABLE_EXISTS: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'latchwork_migrations'";

// Served by the primary key.
const APPLIED: &str = "SELECT version, checksum FROM latchwork_migrations WHERE set_name = ?1 ORDER BY version";

const NOTE: &str = "
    INSERT INTO latchwork_migrations (set_name, version, name, checksum, applied_at)
    VALUES (?1, ?2, ?3, ?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER))";

impl SqliteClient {
    /// Brings the schema of one set to what this program needs, as far as `mode` allows, and returns its version.
    ///
    /// All in one transaction: any number of processes can call it at once, and one of them does the work.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Schema`] when the file has a newer version, another history, or an older version that `mode`
    /// does not allow to change.
    pub async fn migrate(&self, set: &MigrationSet, mode: SchemaMode) -> Result<i64, SqliteError> {
        let mismatch = |why: &dyn fmt::Display| {
            SqliteError::new(
                SqliteErrorKind::Schema,
                self.path(),
                format!("schema {}: this program needs version {}, {why}", set.name, set.version()),
            )
        };
        let mut reader = self.reader().await?;
        let applied = applied(&mut reader, set).await.map_err(|error| self.error(error))?;
        drop(reader);
        let missing = set.missing(&applied).map_err(|differs| mismatch(&differs))?;
        if missing.is_empty() {
            return Ok(set.version());
        }
        let found: &dyn fmt::Display = match applied.last() {
            None => &"the file has none of it",
            Some((version, _)) => &format!("the file has the older version {version}"),
        };
        let allowed = match mode {
            SchemaMode::Migrate => true,
            SchemaMode::CreateIfMissing => applied.is_empty(),
            SchemaMode::Verify => false,
        };
        if !allowed {
            return Err(mismatch(&format!("{found}, and changing it is not allowed here ({mode:?})")));
        }

        let mut transaction = self.begin().await?;
        let failed = |error| self.error(error);
        sqlx::query(CREATE_TABLE).execute(&mut *transaction).await.map_err(failed)?;
        // Another process may have done it while this one waited for the lock.
        let applied: Vec<(i64, Vec<u8>)> =
            sqlx::query_as(APPLIED).bind(&set.name).fetch_all(&mut *transaction).await.map_err(failed)?;
        let missing = set.missing(&applied).map_err(|differs| mismatch(&differs))?;
        for migration in missing {
            tracing::info!(set = %set.name, version = migration.version, name = %migration.name, "migrating the schema");
            sqlx::raw_sql(AssertSqlSafe(migration.sql.to_string())).execute(&mut *transaction).await.map_err(|error| {
                SqliteError::new(
                    SqliteErrorKind::Schema,
                    self.path(),
                    format!("schema {}: migration {} ({}) failed: {error}", set.name, migration.version, migration.name),
                )
                .with_source(error)
            })?;
            sqlx::query(NOTE)
                .bind(&set.name)
                .bind(migration.version)
                .bind(migration.name.as_ref())
                .bind(migration.checksum())
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
        }
        transaction.commit().await?;
        Ok(set.version())
    }
}

async fn applied(connection: &mut SqliteConnection, set: &MigrationSet) -> Result<Vec<(i64, Vec<u8>)>, sqlx::Error> {
    let exists: i64 = sqlx::query_scalar(TABLE_EXISTS).fetch_one(&mut *connection).await?;
    if exists == 0 {
        return Ok(Vec::new());
    }
    sqlx::query_as(APPLIED).bind(&set.name).fetch_all(connection).await
}
