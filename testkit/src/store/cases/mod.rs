//! The cases, by what they are about.

mod activity;
mod checkpoint;
mod event;
mod inbox;
mod instance;

pub(super) use activity::*;
pub(super) use checkpoint::*;
pub(super) use event::*;
pub(super) use inbox::*;
pub(super) use instance::*;
