#![doc = include_str!("../README.md")]

mod activity;
mod checkpoint;
mod create;
mod definition;
mod error;
mod event;
mod inbox;
mod lanes;
mod lease;
mod load;
mod matching;
mod options;
#[cfg(test)]
mod plans;
mod provider;
mod query;
mod record;
mod retention;
mod rows;
mod schema;
mod sql;
mod transaction;

pub use latchwork_sqlite_client::{SqliteOptions, SqliteTransaction};
pub use lease::{SqliteLeaseLocks, SqliteLeaseOptions, UseSqliteLeaseLocking};
pub use options::UseSqlitePersistence;
pub use provider::SqliteStore;
