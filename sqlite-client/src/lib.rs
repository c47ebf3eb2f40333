#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`SqliteClient`] | one file, opened once per process: its writer, its readers, its claim |
//! | [`SqliteOptions`] | path, busy time-out, readers |
//! | [`Lane`], [`WriteBatch`] | typed queues whose items are written together |
//! | [`SqliteTransaction`] | a transaction of its own, for writes that share no group |
//! | [`SqliteClaim`] | keeps other processes out of a file |
//! | [`MigrationSet`], [`SchemaMode`] | versioned schemas |
//! | [`SqliteError`] | what can go wrong, sorted by what to do |

mod backoff;
mod claim;
mod client;
mod connection;
mod error;
mod migration;
mod options;
mod transaction;
mod turn;
mod writer;

pub use sqlx;

pub use claim::SqliteClaim;
pub use client::{Reader, SqliteClient};
pub use error::{Outcome, SqliteError, SqliteErrorKind};
pub use migration::{Migration, MigrationSet, SchemaMode};
pub use options::SqliteOptions;
pub use transaction::SqliteTransaction;
pub use writer::{Lane, WriteBatch, WriterStats};
