#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`LocalQueue`] | the queue, and a handle on it |
//! | [`LocalQueueOptions`] | its capacity and clock |
//! | [`UseLocalQueue`] | wires it into a host |

mod line;
mod options;
mod provider;
mod wiring;

pub use options::LocalQueueOptions;
pub use provider::LocalQueue;
pub use wiring::UseLocalQueue;
