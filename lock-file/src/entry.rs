//! What the table of held names holds.

use crate::{
    os::Hold,
    place::{Place, PlaceHash},
    turn::Turn,
};
use latchwork_core::lock::{LockGuard, LockKey, LockMode, LossSignal};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A shard's map below this capacity is not worth shrinking.
const SMALL: usize = 64;

/// A provider over a directory: what `stop` tells apart.
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) stopped: CancellationToken,
}

/// A grant.
pub(crate) struct Holder {
    pub(crate) grant: u64,
    pub(crate) member: Arc<Member>,
    pub(crate) loss: LossSignal,
}

/// A name that this process holds or tries to.
pub(crate) struct Entry {
    pub(crate) state: State,
    pub(crate) waiters: VecDeque<Waiter>,
    /// Since when this process has been on it without a pause that others could use.
    pub(crate) since: Instant,
}

pub(crate) enum State {
    /// There is one [`Turn`] for this name: somebody asks the operating system, or frees.
    Turn,
    /// The operating system has granted it to this process, which has granted it to these.
    Held { mode: LockMode, hold: Hold, holders: Vec<Holder> },
}

pub(crate) struct Waiter {
    pub(crate) number: u64,
    pub(crate) key: LockKey,
    pub(crate) mode: LockMode,
    pub(crate) member: Arc<Member>,
    pub(crate) sender: oneshot::Sender<Moved>,
}

/// What a waiter gets.
pub(crate) enum Moved {
    /// It is the first now, and may ask the operating system.
    Turn(Turn),
    /// It shares what this process holds.
    Granted(LockGuard),
}

/// Sent when the shard is unlocked. What arrives for nobody comes back and is dropped: a turn passes on, a grant is freed.
#[derive(Default)]
pub(crate) struct Deliveries(pub(crate) Vec<(oneshot::Sender<Moved>, Moved)>);

impl Deliveries {
    pub(crate) fn send(self) {
        for (sender, moved) in self.0 {
            drop(sender.send(moved));
        }
    }
}

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) names: HashMap<Place, Entry, PlaceHash>,
}

impl Shard {
    pub(crate) fn remove(&mut self, place: Place) {
        self.names.remove(&place);
        // Shrinking to twice the need when an eighth is in use: each name pays for a constant number of moves.
        if self.names.capacity() > SMALL && self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(self.names.len() * 2);
        }
    }
}
