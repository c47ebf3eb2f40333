#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`lock`] | [`DistributedLockProvider`](lock::DistributedLockProvider), guards, requests, keys, conveniences |
//! | [`queue`] | [`QueueProvider`](queue::QueueProvider), deliveries, work items |
//! | [`store`] | [`PersistenceProvider`](store::PersistenceProvider), checkpoints, instances, events, queries |
//! | [`hub`] | [`LifeCycleEventHub`](hub::LifeCycleEventHub) and the events it carries |
//! | [`options`] | [`WorkflowOptions`](options::WorkflowOptions), [`Configure`](options::Configure), provider factories |
//! | [`retention`] | [`Retention`](retention::Retention): how long what is over is kept |
//! | [`clock`] | [`Clock`](clock::Clock) and [`Timestamp`](clock::Timestamp): where all time comes from |
//! | [`name`] | the rules for names and keys, checked where they enter |
//! | [`limits`] | the sizes that untrusted input is held to |
//!
//! # For implementers
//!
//! Each trait says, method by method, what must hold. The invariants they refer to:
//!
//! * **I1 one owner**: an instance is advanced by one node at a time; every write of an instance is conditional on the
//!   revision that was loaded.
//! * **I2 exactly-once transitions, at-least-once bodies**: a step whose completion was committed never runs again.
//! * **I3 no lost event**: within its retention an event reaches every wait that matches it, once, whichever of the two
//!   was committed first.
//! * **I4 no lost timer**: a timer fires at or after its time by the store's clock, on any live node.
//! * **I5 the queue is a hint**: losing the whole queue delays work by at most two polls.
//! * **I6 nothing runs unlocked**: with the lock service down nothing starts.
//! * **I7 a clean stop**: `stop` is bounded in time and releases what can be released.
//! * **I8 no panic, no silence**: typed errors that say what, where and what to do.
//!
//! The crate `latchwork-testkit` holds one conformance suite per trait.

pub mod clock;
pub mod hub;
pub mod limits;
pub mod lock;
pub mod name;
pub mod options;
pub mod queue;
pub mod retention;
pub mod scope;
pub mod store;

pub use async_trait::async_trait;
pub use scope::Scope;

/// Any error, boxed: what the source of a typed error is kept as.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
