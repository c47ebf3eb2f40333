//! Short, jittered pauses between two tries.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_micros(500);
const LONGEST: Duration = Duration::from_millis(20);

/// Pauses that grow from half a millisecond to 20 ms until a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    deadline: Instant,
    step: Duration,
}

impl Backoff {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, step: SHORTEST }
    }

    /// Waits; `false` without waiting once the deadline has passed.
    pub(crate) async fn pause(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        tokio::time::sleep(jittered(self.step)).await;
        self.step = (self.step * 2).min(LONGEST);
        true
    }
}

/// Between half of `around` and one and a half of it.
pub(crate) fn jittered(around: Duration) -> Duration {
    // The standard library's hash keys are the only randomness at hand, and quite enough to part two sleepers.
    let random = RandomState::new().build_hasher().finish();
    let permille = 500 + (random % 1001) as u32;
    around * permille / 1000
}
