//! Round trips that callers share: what is asked for while a request is under way goes together into the next one.

mod claim;
mod enqueue;

pub(crate) use claim::{Ask, Looking, look};
pub(crate) use enqueue::{Enqueue, enqueue};
