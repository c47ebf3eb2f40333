use crate::{SqlServerQueue, SqlServerQueueOptions};
use latchwork_core::options::Configure;
use latchwork_sqlserver_client::ConnectionString;

/// Wires the SQL Server queue into a host.
pub trait UseSqlServerQueue: Configure {
    /// Takes hints from a table in the database of this ADO.NET connection string: all hosts that do so, in the same namespace,
    /// share the work.
    fn use_sqlserver_queue(self, connection_string: impl Into<ConnectionString>) -> Self {
        self.use_sqlserver_queue_with(SqlServerQueueOptions::new(connection_string))
    }

    /// Takes hints from a table in a SQL Server database. Impossible options fail the start of the host.
    fn use_sqlserver_queue_with(mut self, options: SqlServerQueueOptions) -> Self {
        self.options().use_queue_provider(async move |context| SqlServerQueue::open(options.clone(), &context).await);
        self
    }
}

impl<T: Configure> UseSqlServerQueue for T {}
