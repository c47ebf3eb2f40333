#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`SqlServerQueue`] | the queue |
//! | [`SqlServerQueueOptions`] | its server, lease and pauses |
//! | [`UseSqlServerQueue`] | wires it into a host |
//! | [`migrations`] | its table, and the script for a DBA |

mod error;
mod lanes;
mod options;
mod provider;
mod schema;
mod table;
mod wiring;

pub use latchwork_sqlserver_client::{ConnectionString, MigrationSet};
pub use options::SqlServerQueueOptions;
pub use provider::SqlServerQueue;
pub use schema::migrations;
pub use wiring::UseSqlServerQueue;
