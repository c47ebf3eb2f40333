#![doc = include_str!("../README.md")]

mod activity;
mod channel;
mod content;
mod id_hash;
mod instance;
mod options;
mod provider;
mod query;
mod shard;
mod small_map;

pub use options::UseMemoryPersistence;
pub use provider::MemoryStore;
