use super::table::HostId;
use crate::clock::{Clock, ClockExt, Timestamp, add};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The longest sleep without a look at the clock on the wall: the machine may have been suspended.
const SLICE: Duration = Duration::from_secs(1);

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) monotonic: Duration,
    wall: Timestamp,
}

impl Moment {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self { monotonic: clock.monotonic(), wall: clock.now() }
    }

    pub(super) fn after(self, span: Duration) -> Self {
        Self { monotonic: self.monotonic.saturating_add(span), wall: add(self.wall, span) }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Valid until the first clock has reached this.
    Until(Moment),
    Over,
}

/// One lease as its node sees it.
pub(super) struct Term {
    pub(super) host: HostId,
    /// Counts the leases of a provider: the session of its grants.
    pub(super) number: u64,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("host", &self.host).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Term {
    pub(super) fn new(host: HostId, number: u64, clock: Arc<dyn Clock>, until: Moment) -> Self {
        Self { host, number, clock, state: Mutex::new(State::Until(until)) }
    }

    fn with_state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Until(until) = *state {
            let now = Moment::now(&*self.clock);
            if now.monotonic >= until.monotonic || now.wall >= until.wall {
                *state = State::Over;
            }
        }
        look(&mut state)
    }

    /// Whether the deadline has been reached, now or ever.
    pub(super) fn is_over(&self) -> bool {
        self.with_state(|state| matches!(state, State::Over))
    }

    /// Ends it before its deadline.
    pub(super) fn end(&self) {
        self.with_state(|state| *state = State::Over);
    }

    /// It was renewed. `false` when it was over by then, and so it stays.
    pub(super) fn extend(&self, until: Moment) -> bool {
        self.with_state(|state| match state {
            State::Until(end) => {
                *end = until;
                true
            }
            State::Over => false,
        })
    }

    /// Sleeps until this monotonic time, or until it is over.
    pub(super) async fn sleep_until(&self, monotonic: Duration) {
        loop {
            let now = self.clock.monotonic();
            let Some(end) = self.with_state(|state| match state {
                State::Until(until) => Some(until.monotonic),
                State::Over => None,
            }) else {
                return;
            };
            if now >= monotonic {
                return;
            }
            let left = monotonic.min(end).saturating_sub(now);
            self.clock.sleep(left.min(SLICE)).await;
        }
    }
}
