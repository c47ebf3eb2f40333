use latchwork_core::{lock::lease::LeaseOptions, options::ProviderContext, store::SchemaMode};
use latchwork_sqlite_client::SqliteOptions;
use std::time::Duration;

/// How locks are kept as leases in a SQLite file.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to `SqliteLeaseLocks::open`"]
#[non_exhaustive]
pub struct SqliteLeaseOptions {
    /// The file, which may be the store's.
    pub file: SqliteOptions,
    /// How leases are kept: namespace, node, renewal period, margin, clock. Their end is a time of this clock, as all times in
    /// the file are.
    pub lease: LeaseOptions,
    /// Who makes the tables. Default: this program, which also brings them up to date.
    pub schema: SchemaMode,
}

impl SqliteLeaseOptions {
    /// Leases in this file, of 60 s, renewed every 30 s.
    pub fn new(file: SqliteOptions) -> Self {
        Self { file, lease: LeaseOptions::default(), schema: SchemaMode::default() }
    }

    /// With leases that are kept like this.
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// Renews so often, 1 s to 12 h, with a margin of the same length; the work of a dead node goes on after at most the sum of both.
    pub fn with_renewal_period(mut self, period: Duration) -> Self {
        self.lease = self.lease.with_renewal_period(period).with_margin(period);
        self
    }

    /// Does this about the tables.
    pub fn with_schema(mut self, mode: SchemaMode) -> Self {
        self.schema = mode;
        self
    }

    /// As a host has it.
    pub(super) fn in_context(mut self, context: ProviderContext) -> Self {
        self.lease = self.lease.with_namespace(context.namespace).with_node(&*context.node).with_clock(context.clock);
        self.schema = context.schema;
        self
    }
}
