//! The cases, by what they are about.

mod checkpoint;
mod instance;

pub(super) use checkpoint::*;
pub(super) use instance::*;
