//! The cases, by what they are about.

mod activity;
mod checkpoint;
mod definition;
mod event;
mod inbox;
mod instance;
mod life;
mod pointer;
mod query;
mod race;
mod retention;

pub(super) use activity::*;
pub(super) use checkpoint::*;
pub(super) use definition::*;
pub(super) use event::*;
pub(super) use inbox::*;
pub(super) use instance::*;
pub(super) use life::*;
pub(super) use pointer::*;
pub(super) use query::*;
pub(super) use race::*;
pub(super) use retention::*;
