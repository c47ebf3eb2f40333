//! A schema of its own on the server that `LATCHWORK_TEST_SQLSERVER` names, for each test.
#![allow(dead_code, reason = "each test program uses a part of it")]

use latchwork_core::{
    BoxError,
    name::Namespace,
    options::ProviderContext,
    queue::{QueueKind, WorkItem},
    store::InstanceId,
};
use latchwork_queue_sqlserver::{SqlServerQueue, SqlServerQueueOptions};
use latchwork_sqlserver_client::{SchemaName, Session, SqlServerOptions, driver::Row};
use std::time::Duration;

pub(crate) const SERVER: &str = "LATCHWORK_TEST_SQLSERVER";
pub(crate) const QUEUE: QueueKind = QueueKind::Workflow;
/// What has not come by then is lost.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Place {
    pub(crate) connection_string: String,
    pub(crate) namespace: Namespace,
    /// Who made it removes it.
    owned: bool,
}

impl Place {
    /// `None`, which is said, when there is no server.
    pub(crate) fn new() -> Option<Self> {
        let Ok(connection_string) = std::env::var(SERVER) else {
            println!("skipped: {SERVER} is not set");
            return None;
        };
        let id = InstanceId::new().as_str().replace('-', "");
        let namespace = Namespace::new(&format!("q{}", &id[..31])).expect("a name");
        Some(Self { connection_string, namespace, owned: true })
    }

    /// One that another process has made, and removes.
    pub(crate) fn existing(connection_string: String, namespace: &str) -> Self {
        Self { connection_string, namespace: Namespace::new(namespace).expect("a name"), owned: false }
    }

    pub(crate) fn options(&self) -> SqlServerQueueOptions {
        patient(SqlServerQueueOptions::new(self.connection_string.as_str()))
    }

    pub(crate) fn context(&self) -> ProviderContext {
        ProviderContext::new(self.namespace.clone(), "node")
    }

    pub(crate) async fn open(&self, options: SqlServerQueueOptions) -> SqlServerQueue {
        self.try_open(options).await.unwrap_or_else(|error| panic!("{error}: {:?}", error.source()))
    }

    pub(crate) async fn try_open(&self, options: SqlServerQueueOptions) -> Result<SqlServerQueue, BoxError> {
        SqlServerQueue::open(options, &self.context()).await
    }

    fn schema(&self) -> SchemaName {
        SchemaName::new(&format!("latchwork_{}", self.namespace.as_str())).expect("a schema")
    }

    /// Runs a batch that is written for the schema `[latchwork]`, here.
    pub(crate) async fn ask(&self, sql: &str) -> Vec<Row> {
        let mut session = self.session().await;
        let results = session.batch(&self.schema().apply(sql), LONG).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
        results.into_iter().flatten().collect()
    }

    /// One whole number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.ask(sql).await.first().and_then(|row| row.get::<i64, _>(0)).unwrap_or_else(|| panic!("no number: {sql}"))
    }

    pub(crate) async fn session(&self) -> Session {
        let options = SqlServerOptions::new(self.connection_string.as_str());
        Session::open(&options).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Whether it is Babelfish, which takes most of the language and ignores what is said of locks.
    pub(crate) async fn is_a_stand_in(&self) -> bool {
        let rows = self.ask("SELECT CAST(SERVERPROPERTY('babelfish') AS int) AS [babelfish];").await;
        rows.first().is_some_and(|row| row.get::<i32, _>(0) == Some(1))
    }

    async fn remove(&self) {
        self.ask("DROP TABLE IF EXISTS [latchwork].[queue]; DROP TABLE IF EXISTS [latchwork].[migration];").await;
        self.ask("DROP SCHEMA IF EXISTS [latchwork];").await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // A drop cannot wait within the runtime of the test.
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(self.remove());
            });
            if removed.join().is_err() {
                println!("the schema of {} is left behind", self.namespace.as_str());
            }
        });
    }
}

/// With limits that a busy machine keeps.
pub(crate) fn patient(options: SqlServerQueueOptions) -> SqlServerQueueOptions {
    options.with_connect_timeout(LONG * 2).with_request_timeout(LONG * 2)
}

pub(crate) fn hints(count: usize) -> Vec<WorkItem> {
    (0..count).map(|_| WorkItem::new(InstanceId::new(), "order", 1)).collect()
}
