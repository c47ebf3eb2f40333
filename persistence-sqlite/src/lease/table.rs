use super::{PROVIDER, SqliteLeaseOptions};
use crate::{record::micros, schema, sql::Sql};
use latchwork_core::{
    Scope, async_trait,
    clock::{self, Clock},
    lock::{
        Failure, KeyLimit, LockError,
        lease::{HostId, LeaseAnswer, LeaseBatch, LeaseTable},
    },
};
use latchwork_sqlite_client::{
    SqliteClient, SqliteError,
    sqlx::{self, SqliteConnection},
};
use std::{fmt, sync::Arc, time::Duration};

/// What a name may be long: as in the other stores, so that a name is the same there.
const LONGEST: KeyLimit = KeyLimit::bytes(255);

/// How long after its end a host's row is kept, in microseconds: no request of it can be under way any more.
const KEPT: i64 = 3_600_000_000;

const END: &str = "UPDATE latchwork_lease_host SET owned_until = ?2 WHERE host = ?1 AND owned_until > ?2";

const ENTER: &str = "INSERT INTO latchwork_lease_host (host, node, owned_until, request) VALUES (?1, ?2, ?3, 0)";

const RENEW: &str = "UPDATE latchwork_lease_host SET owned_until = ?3 WHERE host = ?1 AND owned_until > ?2";

/// The request `?3` of a live host, when none with a higher number was done.
const REQUEST: &str = "
    UPDATE latchwork_lease_host SET request = ?3
    WHERE host = ?1 AND owned_until > ?2 AND request < ?3";

/// By the primary key. Owner and token are compared: a stale release frees nothing.
const RELEASE: &str = "
    DELETE FROM latchwork_lease_lock
    WHERE name = ?1 AND host = ?2 AND (?3 IS NULL OR fence = ?3)";

/// So many tokens, of which this is the last.
const DRAW: &str = "UPDATE latchwork_lease_fence SET last = last + ?1 RETURNING last";

/// Takes what nobody has, what a dead host has, and what a request of this host without an answer left. By the primary keys.
const ACQUIRE: &str = "
    INSERT INTO latchwork_lease_lock (name, host, fence)
    SELECT a.value, ?1, ?3 + a.key FROM json_each(?4) AS a WHERE true
    ON CONFLICT (name) DO UPDATE SET host = excluded.host, fence = excluded.fence
    WHERE host = excluded.host OR NOT EXISTS (
        SELECT 1 FROM latchwork_lease_host AS h WHERE h.host = latchwork_lease_lock.host AND h.owned_until > ?2
    )
    RETURNING fence";

/// What ended leases have left, a bounded number of rows. An ended lease stays ended, so nobody's lock is among them.
const LEFT: &str = "
    DELETE FROM latchwork_lease_lock WHERE name IN (
        SELECT l.name
        FROM latchwork_lease_host AS h INNER JOIN latchwork_lease_lock AS l ON l.host = h.host
        WHERE h.owned_until <= ?1
        LIMIT 2000
    )";

/// Hosts that ended before `?1` and have left nothing, a bounded number.
const FORGOTTEN: &str = "
    DELETE FROM latchwork_lease_host WHERE host IN (
        SELECT h.host FROM latchwork_lease_host AS h
        WHERE h.owned_until <= ?1 AND NOT EXISTS (SELECT 1 FROM latchwork_lease_lock AS l WHERE l.host = h.host)
        LIMIT 100
    )";

/// The tables of leases of a namespace in a file.
#[derive(Clone)]
pub(super) struct SqliteLeases {
    client: SqliteClient,
    sql: Sql,
    /// Asked within the transaction: whoever waited for the file must not decide by the time before.
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for SqliteLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLeases").field("file", &self.client.path()).finish_non_exhaustive()
    }
}

impl SqliteLeases {
    /// Opens the file, and makes or checks the tables.
    pub(super) async fn open(options: &SqliteLeaseOptions) -> Result<Self, LockError> {
        let file = options.file.path().display().to_string();
        let failed = |error: SqliteError| failure(&error).of(PROVIDER, &file);
        let client = SqliteClient::open(options.file.clone()).await.map_err(failed)?;
        let namespace = &options.lease.namespace;
        client.migrate(&schema::lease_migrations(namespace), schema::mode(options.schema)).await.map_err(failed)?;
        Ok(Self { client, sql: Sql::new(namespace), clock: options.lease.clock.clone() })
    }

    fn now(&self) -> i64 {
        micros(self.clock.now())
    }

    fn after(&self, lease: Duration) -> i64 {
        micros(clock::add(self.clock.now(), lease))
    }

    async fn entered(
        &self,
        connection: &mut SqliteConnection,
        host: HostId,
        node: &str,
        previous: Option<HostId>,
        lease: Duration,
    ) -> Result<(), sqlx::Error> {
        if let Some(previous) = previous {
            sqlx::query(self.sql.get(END)).bind(previous.to_string()).bind(self.now()).execute(&mut *connection).await?;
        }
        let enter = sqlx::query(self.sql.get(ENTER)).bind(host.to_string()).bind(node).bind(self.after(lease));
        enter.execute(connection).await.map(drop)
    }

    async fn exchanged(
        &self,
        connection: &mut SqliteConnection,
        host: HostId,
        batch: &LeaseBatch,
    ) -> Result<LeaseAnswer, sqlx::Error> {
        let (host, now) = (host.to_string(), self.now());
        let number = i64::try_from(batch.number).unwrap_or(i64::MAX);
        let request = sqlx::query(self.sql.get(REQUEST)).bind(&host).bind(now).bind(number);
        if request.execute(&mut *connection).await?.rows_affected() == 0 {
            return Ok(LeaseAnswer::Ended);
        }
        for freed in &batch.releases {
            let fence = freed.fence.map(|fence| i64::try_from(fence).unwrap_or(i64::MAX));
            let release = sqlx::query(self.sql.get(RELEASE)).bind(&*freed.name).bind(&host).bind(fence);
            release.execute(&mut *connection).await?;
        }
        let mut fences = vec![None; batch.acquires.len()];
        if fences.is_empty() {
            return Ok(LeaseAnswer::Done(fences));
        }
        let asked = i64::try_from(fences.len()).unwrap_or(i64::MAX);
        let last: i64 = sqlx::query_scalar(self.sql.get(DRAW)).bind(asked).fetch_one(&mut *connection).await?;
        let first = last - asked + 1;
        let names = serde_json::to_string(&batch.acquires.iter().map(|name| &**name).collect::<Vec<_>>());
        let names = names.map_err(crate::error::unwritable)?;
        let acquire = sqlx::query_scalar(self.sql.get(ACQUIRE)).bind(&host).bind(now).bind(first).bind(names);
        let granted: Vec<i64> = acquire.fetch_all(connection).await?;
        for fence in granted {
            let position = usize::try_from(fence - first).ok();
            if let Some(place) = position.and_then(|position| fences.get_mut(position)) {
                *place = u64::try_from(fence).ok();
            }
        }
        Ok(LeaseAnswer::Done(fences))
    }
}

fn failure(error: &SqliteError) -> Failure {
    if error.is_retryable() { Failure::transient(error) } else { Failure::lasting(error) }
}

#[async_trait]
impl LeaseTable for SqliteLeases {
    fn provider(&self) -> &'static str {
        PROVIDER
    }

    fn domain(&self) -> String {
        format!("{PROVIDER}:{}", self.client.path().display())
    }

    fn scope(&self) -> Scope {
        Scope::Host
    }

    fn longest_key(&self) -> KeyLimit {
        LONGEST
    }

    async fn enter(&self, host: HostId, node: &str, previous: Option<HostId>, lease: Duration) -> Result<(), Failure> {
        let (table, node) = (self.clone(), node.to_owned());
        let entered = self.client.write(move |connection| {
            let (table, node) = (table.clone(), node.clone());
            Box::pin(async move { table.entered(connection, host, &node, previous, lease).await })
        });
        entered.await.map_err(|error| failure(&error))
    }

    async fn renew(&self, host: HostId, lease: Duration) -> Result<bool, Failure> {
        let renewed = async {
            let mut transaction = self.client.begin().await?;
            let renew = sqlx::query(self.sql.get(RENEW)).bind(host.to_string()).bind(self.now()).bind(self.after(lease));
            let done = renew.execute(&mut *transaction).await.map_err(|error| self.client.error(error))?;
            transaction.commit().await?;
            Ok::<_, SqliteError>(done.rows_affected() == 1)
        };
        renewed.await.map_err(|error| failure(&error))
    }

    async fn exchange(&self, host: HostId, batch: &LeaseBatch) -> Result<LeaseAnswer, Failure> {
        let (table, batch) = (self.clone(), Arc::new(batch.clone()));
        let exchanged = self.client.write(move |connection| {
            let (table, batch) = (table.clone(), batch.clone());
            Box::pin(async move { table.exchanged(connection, host, &batch).await })
        });
        exchanged.await.map_err(|error| failure(&error))
    }

    async fn leave(&self, host: HostId) -> Result<(), Failure> {
        let table = self.clone();
        let left = self.client.write(move |connection| {
            let end = sqlx::query(table.sql.get(END)).bind(host.to_string()).bind(table.now());
            Box::pin(async move { end.execute(connection).await.map(drop) })
        });
        left.await.map_err(|error| failure(&error))
    }

    async fn purge(&self) -> Result<(), Failure> {
        let table = self.clone();
        let purged = self.client.write(move |connection| {
            let (left, forgotten, now) = (table.sql.get(LEFT), table.sql.get(FORGOTTEN), table.now());
            Box::pin(async move {
                sqlx::query(left).bind(now).execute(&mut *connection).await?;
                sqlx::query(forgotten).bind(now.saturating_sub(KEPT)).execute(connection).await.map(drop)
            })
        });
        purged.await.map_err(|error| failure(&error))
    }
}
