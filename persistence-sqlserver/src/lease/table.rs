use super::{PROVIDER, options::SqlServerLeaseOptions};
use crate::{
    error::Failure,
    schema::{mode, schema_name},
    server::Server,
    sql::{Columns, Request, batch},
};
use latchwork_core::{
    async_trait,
    lock::{
        self, KeyLimit, LockError,
        lease::{HostId, LeaseAnswer, LeaseBatch, LeaseTable},
    },
};
use latchwork_sqlserver_client::{Migration, MigrationSet, SchemaName, SqlServerError, SqlServerOptions, SqlServerPool};
use serde::Serialize;
use std::time::Duration;

/// The history of the tables.
const MIGRATIONS: &[Migration] = &[Migration { version: 1, name: "leases", sql: include_str!("schema/001_leases.sql") }];

/// What a name's column keeps; the bytes are for servers that count those.
const LONGEST: KeyLimit = KeyLimit::bytes(255).with_utf16_units(255);
/// What the column of a node's name keeps, in UTF-16 units.
const LONGEST_NODE: usize = 200;

/// How often a request is sent again that the server undid because of another one at the same moment.
const CONFLICTS: u32 = 20;

const ENTER: &str = batch!("enter");
const RENEW: &str = batch!("renew");
const LEAVE: &str = batch!("leave");
const PURGE: &str = batch!("purge");
const ACQUIRE: &str = batch!("begin" "acquire" "end");
const RELEASE: &str = batch!("begin" "release" "end");
const BOTH: &str = batch!("begin" "release" "acquire" "end");

/// The history of the tables in this schema.
pub(super) fn migrations(schema: SchemaName) -> MigrationSet {
    MigrationSet::new(schema, "lease", MIGRATIONS)
}

/// A release, as the statement reads it.
#[derive(Serialize)]
struct Freed<'a> {
    name: &'a str,
    fence: Option<u64>,
}

/// The tables of leases in a schema, on two sessions: one renews, one does all the rest.
#[derive(Debug)]
pub(super) struct SqlServerLeases {
    domain: String,
    requests: Server,
    renewals: Server,
}

impl SqlServerLeases {
    /// Makes or checks the tables, and opens the first session.
    pub(super) async fn open(options: &SqlServerLeaseOptions) -> Result<Self, LockError> {
        let session = |role: &str| {
            SqlServerOptions::new(options.connection_string.clone())
                .with_application_name(format!("Latchwork Lease {role}/{}", options.lease.node))
                .with_connect_timeout(options.connect_timeout)
        };
        let named = session("").server();
        let named = named.strip_suffix(",1433").unwrap_or(&named);
        let failed = |error: SqlServerError| failure(&error.into()).of(PROVIDER, named);
        let schema = schema_name(&options.lease.namespace);
        // With the client's own limit: a schema takes longer than a lock.
        migrations(schema.clone()).migrate(&session("Schema"), mode(options.schema)).await.map_err(failed)?;
        let requests = session("Locks").with_request_timeout(options.answer_within);
        let within = options.lease.answer_within();
        let renewals = session("Renewals").with_connect_timeout(within).with_request_timeout(within);
        let server = |options| {
            Ok::<_, LockError>(Server { pool: SqlServerPool::new(options, 1).map_err(failed)?, schema: schema.clone() })
        };
        let (requests, renewals) = (server(requests)?, server(renewals)?);
        let database = requests.ask(Request::new("SELECT DB_NAME() AS [name];")).await;
        let database = database.and_then(|rows| only(rows)?.text()).map_err(|error| failure(&error).of(PROVIDER, named))?;
        Ok(Self { domain: format!("{PROVIDER}:{named}/{database}/{schema}"), requests, renewals })
    }

    async fn exchange_once(&self, host: HostId, batch: &LeaseBatch) -> Result<LeaseAnswer, Failure> {
        let text = match (batch.releases.is_empty(), batch.acquires.is_empty()) {
            (true, _) => ACQUIRE,
            (false, true) => RELEASE,
            (false, false) => BOTH,
        };
        let freed: Vec<_> = batch.releases.iter().map(|freed| Freed { name: &freed.name, fence: freed.fence }).collect();
        let names: Vec<&str> = batch.acquires.iter().map(|name| &**name).collect();
        let number = i64::try_from(batch.number).unwrap_or(i64::MAX);
        let request = Request::new(text).with(host.to_string()).with(number);
        let request = request.with(serde_json::to_string(&freed)?).with(serde_json::to_string(&names)?);
        let mut rows = self.requests.ask_once(request).await?;
        // The last row says whether the lease is live, those before it what is granted.
        if rows.pop().ok_or_else(|| Failure::corrupt("an answer without a row"))?.int()? != 1 {
            return Ok(LeaseAnswer::Ended);
        }
        let mut fences = vec![None; names.len()];
        for mut row in rows {
            let (position, fence): (usize, u64) = (row.number()?, row.number()?);
            *fences.get_mut(position).ok_or_else(|| Failure::corrupt("a grant that was not asked for"))? = Some(fence);
        }
        Ok(LeaseAnswer::Done(fences))
    }
}

/// The one row of an answer.
fn only(rows: Vec<Columns>) -> Result<Columns, Failure> {
    rows.into_iter().next().ok_or_else(|| Failure::corrupt("an answer without a row"))
}

fn failure(error: &Failure) -> lock::Failure {
    match error {
        Failure::Server(server) if !server.is_transient() && !server.leaves_the_outcome_open() && !is_conflict(error) => {
            lock::Failure::lasting(error)
        }
        // What is not understood may be so by the next session; a conflict that did not end may do so later.
        Failure::Server(_) | Failure::Corrupt(_) | Failure::Unwritable(_) => lock::Failure::transient(error),
    }
}

/// Whether the server has undone the whole request because of another one at the same moment.
fn is_conflict(error: &Failure) -> bool {
    error.is_duplicate() || matches!(error, Failure::Server(server) if server.is_deadlock())
}

fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[async_trait]
impl LeaseTable for SqlServerLeases {
    fn provider(&self) -> &'static str {
        PROVIDER
    }

    fn domain(&self) -> String {
        self.domain.clone()
    }

    fn longest_key(&self) -> KeyLimit {
        LONGEST
    }

    async fn enter(&self, host: HostId, node: &str, previous: Option<HostId>, lease: Duration) -> Result<(), lock::Failure> {
        let previous = previous.map_or_else(String::new, |previous| previous.to_string());
        // A letter has two units at most.
        let node: String = node.chars().take(LONGEST_NODE / 2).collect();
        let request = Request::new(ENTER).with(host.to_string()).with(node).with(milliseconds(lease)).with(previous);
        self.requests.ask_once(request).await.map(drop).map_err(|error| failure(&error))
    }

    async fn renew(&self, host: HostId, lease: Duration) -> Result<bool, lock::Failure> {
        let request = Request::new(RENEW).with(host.to_string()).with(milliseconds(lease));
        let renewed = self.renewals.ask_once(request).await.and_then(|rows| only(rows)?.int());
        renewed.map(|live| live == 1).map_err(|error| failure(&error))
    }

    async fn exchange(&self, host: HostId, batch: &LeaseBatch) -> Result<LeaseAnswer, lock::Failure> {
        let mut left = CONFLICTS;
        loop {
            match self.exchange_once(host, batch).await {
                Err(error) if is_conflict(&error) && left > 0 => left -= 1,
                answer => return answer.map_err(|error| failure(&error)),
            }
        }
    }

    async fn leave(&self, host: HostId) -> Result<(), lock::Failure> {
        let request = Request::new(LEAVE).with(host.to_string());
        self.requests.ask_once(request).await.map(drop).map_err(|error| failure(&error))
    }

    async fn purge(&self) -> Result<(), lock::Failure> {
        self.requests.ask_once(Request::new(PURGE)).await.map(drop).map_err(|error| failure(&error))
    }
}
