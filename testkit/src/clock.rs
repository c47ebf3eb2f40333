//! A virtual clock.
//!
//! ```
//! use latchwork_core::clock::{Clock, ClockExt};
//! use latchwork_testkit::clock::VirtualClock;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let clock = VirtualClock::new();
//! let month = tokio::spawn({
//!     let clock = clock.clone();
//!     async move { clock.sleep(Duration::from_hours(30 * 24)).await }
//! });
//! clock.until_sleepers(1).await;
//! clock.advance(Duration::from_hours(30 * 24));
//! month.await.expect("a month goes by in no time");
//! # }
//! ```

use chrono::TimeDelta;
use latchwork_core::{
    async_trait,
    clock::{Clock, Timestamp, between, whole_micros},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{oneshot, watch};

/// A clock that stands still until it is told to go on. Clones are handles to the same clock.
///
/// Sleepers are woken in the order of their deadlines, and in the order of their coming where those are equal. No real time
/// goes by in it.
#[derive(Clone, Debug)]
pub struct VirtualClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// How many sleep.
    sleepers: watch::Sender<usize>,
}

#[derive(Debug)]
struct State {
    /// To the nanosecond: cut at each advance, it would fall behind `elapsed`.
    wall: Timestamp,
    elapsed: Duration,
    /// By deadline and number.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    last: u64,
}

impl VirtualClock {
    /// A clock that shows the first second of 2030, UTC.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Timestamp::from_timestamp_micros(1_893_456_000_000_000).unwrap_or_default())
    }

    /// A clock that shows this time, cut to whole microseconds.
    #[must_use]
    pub fn starting_at(time: Timestamp) -> Self {
        let state = State { wall: whole_micros(time), elapsed: Duration::ZERO, sleepers: BTreeMap::new(), last: 0 };
        Self(Arc::new(Inner { state: Mutex::new(state), sleepers: watch::Sender::new(0) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets this span go by, on the wall and in [`monotonic`](Clock::monotonic), and wakes those who slept until then.
    ///
    /// A sleeper that sleeps again does so from the new time on: to let a repeating timer tick at each of its times, go from one
    /// [`pending_deadline`](Self::pending_deadline) to the next.
    pub fn advance(&self, span: Duration) {
        let target = self.monotonic().saturating_add(span);
        self.advance_to(target);
    }

    /// Lets time go by until [`monotonic`](Clock::monotonic) shows this; nothing when it has already.
    pub fn advance_to(&self, monotonic: Duration) {
        let mut state = self.state();
        let span = monotonic.saturating_sub(state.elapsed);
        state.elapsed += span;
        state.wall = exactly(state.wall, span);
        while let Some(first) = state.sleepers.first_entry().filter(|first| first.key().0 <= monotonic) {
            // A sleeper that is being dropped needs no waking.
            let _ = first.remove().send(());
        }
        self.tell(&state);
    }

    /// Lets time go by until the earliest deadline, and wakes those who slept until then; `false` when nobody sleeps.
    pub fn advance_to_next(&self) -> bool {
        let Some(next) = self.pending_deadline() else { return false };
        self.advance_to(next);
        true
    }

    /// The earliest time, as [`monotonic`](Clock::monotonic) shows it, until which somebody sleeps.
    #[must_use]
    pub fn pending_deadline(&self) -> Option<Duration> {
        self.state().sleepers.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Sets the clock on the wall, forth or back, as an administrator does. No time goes by, and nobody is woken.
    pub fn jump_to(&self, time: Timestamp) {
        self.state().wall = whole_micros(time);
    }

    /// Sets the clock on the wall forward by this span. No time goes by, and nobody is woken.
    pub fn jump_forward(&self, span: Duration) {
        let mut state = self.state();
        state.wall = exactly(state.wall, span);
    }

    /// Sets the clock on the wall back by this span. No time goes by, and nobody is woken.
    pub fn jump_back(&self, span: Duration) {
        let mut state = self.state();
        // The sum saturates, so its distance is a span that can be subtracted.
        let ahead = exactly(state.wall, span);
        let distance = ahead - state.wall;
        state.wall = state.wall.checked_sub_signed(distance).unwrap_or(Timestamp::MIN_UTC);
    }

    /// How many sleep now.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.state().sleepers.len()
    }

    /// Resolves when at least so many sleep.
    pub async fn until_sleepers(&self, count: usize) {
        // The sender lives as long as `self`, so this ends by the count only.
        let _ = self.0.sleepers.subscribe().wait_for(|sleepers| *sleepers >= count).await;
    }

    /// How long after this moment of the wall it is; zero before it.
    #[must_use]
    pub fn since(&self, time: Timestamp) -> Duration {
        between(time, self.now())
    }

    fn tell(&self, state: &State) {
        self.0.sleepers.send_replace(state.sleepers.len());
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// The sum, not cut to whole microseconds.
fn exactly(time: Timestamp, span: Duration) -> Timestamp {
    let span = TimeDelta::from_std(span).unwrap_or(TimeDelta::MAX);
    time.checked_add_signed(span).unwrap_or(Timestamp::MAX_UTC)
}

/// A place among the sleepers, given up on drop.
struct Place<'a> {
    clock: &'a VirtualClock,
    key: (Duration, u64),
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.clock.state();
        if state.sleepers.remove(&self.key).is_some() {
            self.clock.tell(&state);
        }
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        whole_micros(self.state().wall)
    }

    fn monotonic(&self) -> Duration {
        self.state().elapsed
    }

    async fn sleep_until(&self, deadline: Duration) {
        let (place, woken) = {
            let mut state = self.state();
            if state.elapsed >= deadline {
                return;
            }
            let (wake, woken) = oneshot::channel();
            state.last += 1;
            let key = (deadline, state.last);
            state.sleepers.insert(key, wake);
            self.tell(&state);
            (Place { clock: self, key }, woken)
        };
        // The sender is dropped only by sending, or with this very place.
        let _ = woken.await;
        drop(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_core::clock::ClockExt;
    use tokio::sync::mpsc;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn time_stands_still_until_it_is_advanced() {
        let clock = VirtualClock::new();
        let (start, monotonic) = (clock.now(), clock.monotonic());
        tokio::task::yield_now().await;
        assert_eq!((clock.now(), clock.monotonic()), (start, monotonic));
        clock.advance(SECOND);
        assert_eq!((clock.since(start), clock.monotonic()), (SECOND, SECOND));
        clock.advance_to(SECOND);
        assert_eq!(clock.monotonic(), SECOND);
    }

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_deadlines_and_not_before() {
        let clock = VirtualClock::new();
        let (tell, mut told) = mpsc::unbounded_channel();
        for seconds in [3, 1, 2] {
            let (clock, tell) = (clock.clone(), tell.clone());
            tokio::spawn(async move {
                clock.sleep(SECOND * seconds).await;
                tell.send(seconds).expect("somebody listens");
            });
        }
        clock.until_sleepers(3).await;
        assert_eq!(clock.pending_deadline(), Some(SECOND));
        clock.advance(SECOND - Duration::from_micros(1));
        tokio::task::yield_now().await;
        assert!(told.try_recv().is_err());
        clock.advance(SECOND * 5);
        assert_eq!([told.recv().await, told.recv().await, told.recv().await], [Some(1), Some(2), Some(3)]);
        assert_eq!(clock.sleepers(), 0);
    }

    #[tokio::test]
    async fn the_wall_jumps_without_time_going_by() {
        let clock = VirtualClock::new();
        let start = clock.now();
        let sleeper = clock.sleep(SECOND);
        tokio::pin!(sleeper);
        assert!(futures_poll(sleeper.as_mut()).await.is_none());
        clock.jump_forward(SECOND * 3600);
        assert_eq!((clock.since(start), clock.monotonic()), (SECOND * 3600, Duration::ZERO));
        assert!(futures_poll(sleeper.as_mut()).await.is_none());
        clock.jump_back(SECOND * 7200);
        assert_eq!(between(clock.now(), start), SECOND * 3600);
        clock.advance(SECOND);
        sleeper.await;
        clock.jump_to(start);
        assert_eq!(clock.now(), start);
    }

    /// The output, when it is there at the first poll.
    async fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }

    #[test]
    fn the_wall_keeps_up_with_time_however_short_the_steps() {
        let clock = VirtualClock::new();
        let start = clock.now();
        for _ in 0..30 {
            clock.advance(SECOND / 30);
        }
        clock.advance_to(SECOND);
        assert_eq!((clock.monotonic(), clock.since(start)), (SECOND, SECOND));
    }

    #[tokio::test]
    async fn a_dropped_sleeper_leaves_no_deadline() {
        let clock = VirtualClock::new();
        {
            let sleeper = clock.sleep(SECOND);
            tokio::pin!(sleeper);
            assert!(futures_poll(sleeper.as_mut()).await.is_none());
            assert_eq!(clock.sleepers(), 1);
        }
        assert_eq!((clock.sleepers(), clock.pending_deadline(), clock.advance_to_next()), (0, None, false));
    }

    #[tokio::test]
    async fn one_can_go_from_timer_to_timer() {
        let clock = VirtualClock::new();
        let ticks = tokio::spawn({
            let clock = clock.clone();
            async move {
                for _ in 0..5 {
                    clock.sleep(SECOND).await;
                }
                clock.monotonic()
            }
        });
        for _ in 0..5 {
            clock.until_sleepers(1).await;
            assert!(clock.advance_to_next());
        }
        assert_eq!(ticks.await.expect("it ends"), SECOND * 5);
    }
}
