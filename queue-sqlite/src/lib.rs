#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`SqliteQueue`] | the queue |
//! | [`SqliteQueueOptions`] | its file, lease and pauses |
//! | [`UseSqliteQueue`] | wires it into a host |

mod error;
mod lanes;
mod options;
mod provider;
mod schema;
mod table;
mod wiring;

pub use latchwork_sqlite_client::SqliteOptions;
pub use options::SqliteQueueOptions;
pub use provider::SqliteQueue;
pub use wiring::UseSqliteQueue;
