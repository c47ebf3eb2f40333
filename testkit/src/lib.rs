#![doc = include_str!("../README.md")]

pub mod clock;
#[cfg(feature = "faults")]
pub mod faults;
#[cfg(feature = "lock")]
pub mod lock;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "queue")]
pub mod queue;
#[cfg(feature = "sqlserver")]
pub mod sqlserver;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "workflow")]
pub mod workflow;
