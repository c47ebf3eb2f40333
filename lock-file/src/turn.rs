//! The right to ask the operating system for a name, a place in the queue for it, and a grant: each gives itself back when
//! it is dropped.

use crate::{directory::Directory, entry::Moved, os::Hold, place::Place};
use latchwork_core::lock::{LockError, Release};
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;

/// The pause after the first try that met another process's lock.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause between two tries.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// A number that other processes do not draw at the same moment. Not for secrets.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Between half of `pause` and the whole of it, so that processes do not try in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause / 2 + pause.mul_f64(f64::from(random() as u16) / f64::from(u16::MAX)) / 2
}

/// The only one for its name in this process. Dropping it lets the next waiter have it, or forgets the name.
pub(crate) struct Turn {
    pub(crate) directory: Arc<Directory>,
    pub(crate) place: Place,
    /// Whether the name is still in this turn, and not held.
    pub(crate) open: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.open {
            self.directory.next(self.place);
        }
    }
}

/// The way back of a grant.
pub(crate) struct Freed {
    pub(crate) directory: Arc<Directory>,
    pub(crate) place: Place,
    pub(crate) grant: u64,
}

impl Release for Freed {
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
        let freed = move || {
            if let Some(reply) = reply {
                let _ = reply.send(Ok(()));
            }
        };
        match self.directory.clone().end(self.place, self.grant) {
            Some((hold, turn)) => self.directory.perform(move || {
                free(hold, turn);
                freed();
            }),
            None => freed(),
        }
    }
}

/// Undoes the operating system's lock, then lets the next one try.
pub(crate) fn free(hold: Hold, turn: Turn) {
    hold.unlock();
    drop(turn);
}

/// A place in a queue. Dropping it gives the place up.
pub(crate) struct Ticket {
    pub(crate) directory: Arc<Directory>,
    pub(crate) place: Place,
    pub(crate) number: u64,
    pub(crate) receiver: oneshot::Receiver<Moved>,
}

impl Ticket {
    /// Gives the place up; what has arrived by now.
    pub(crate) fn give_up(mut self) -> Option<Moved> {
        self.directory.forget(self.place, self.number);
        self.receiver.try_recv().ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.directory.forget(self.place, self.number);
    }
}
