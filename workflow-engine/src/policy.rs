//! What happens when a step fails.

use std::time::Duration;

/// What happens when a step has failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GivingUp {
    /// The instance is suspended with the reason; `retry_step` goes on.
    Suspend,
    /// The instance is terminated with the reason.
    Terminate,
    /// What was done is undone: by the saga around the step, or, outside of sagas, by the step's own compensation.
    Compensate,
    /// The workflow goes on as if the step had done nothing; the error is kept.
    Continue,
}

/// How often and when a failed step is tried again, and what happens when it has failed for good.
///
/// The default: after 1 s, then doubling up to 60 s, with jitter; 10 tries in all. What comes then, when nothing else is said:
///
/// | the step stands | then |
/// | --- | --- |
/// | in a [saga](crate::WorkflowBuilder::saga) | the saga has failed: its steps are compensated |
/// | outside, and has a compensation | the compensation runs, and the workflow goes on after the step |
/// | outside, without one; or in a compensation | the instance is suspended with the reason; `retry_step` goes on |
#[doc(alias = "OnError")]
#[doc(alias = "WorkflowErrorHandling")]
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a policy does nothing until it is given to `on_error`"]
pub struct Retry {
    pub(crate) first: Duration,
    pub(crate) factor: f64,
    pub(crate) longest: Duration,
    pub(crate) attempts: u32,
    pub(crate) jitter: bool,
    /// `None`: as the place of the step says.
    pub(crate) giving_up: Option<GivingUp>,
}

impl Default for Retry {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1))
    }
}

impl Retry {
    /// First after `first`, then doubling up to 60 s (or `first`, when that is longer), with jitter, 10 tries in all.
    pub fn exponential(first: Duration) -> Self {
        let longest = first.max(Duration::from_secs(60));
        Self { first, factor: 2.0, longest, attempts: 10, jitter: true, giving_up: None }
    }

    /// Always after `interval`, 10 tries in all.
    pub fn fixed(interval: Duration) -> Self {
        Self { first: interval, factor: 1.0, longest: interval, attempts: 10, jitter: false, giving_up: None }
    }

    /// Never: the first failure is for good.
    pub fn never() -> Self {
        Self::fixed(Duration::ZERO).max_attempts(1)
    }

    /// So many tries in all, the first one included; at least 1.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// As many tries as it takes.
    pub fn for_ever(mut self) -> Self {
        self.attempts = u32::MAX;
        self
    }

    /// No pause is longer than this.
    pub fn max_interval(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Pauses to the letter, without jitter.
    pub fn without_jitter(mut self) -> Self {
        self.jitter = false;
        self
    }

    /// The instance is suspended when the step has failed for good, also in a saga.
    pub fn then_suspend(mut self) -> Self {
        self.giving_up = Some(GivingUp::Suspend);
        self
    }

    /// The instance is terminated when the step has failed for good, also in a saga, whose steps are not compensated then. Of a saga: when
    /// it has failed for good and is compensated.
    pub fn then_terminate(mut self) -> Self {
        self.giving_up = Some(GivingUp::Terminate);
        self
    }

    /// What was done is undone when the step has failed for good. This is the default in sagas, and of steps with a compensation.
    pub fn then_compensate(mut self) -> Self {
        self.giving_up = Some(GivingUp::Compensate);
        self
    }

    /// The workflow goes on after the step when it has failed for good, as if it had done nothing; the error is kept. Of a saga: when it
    /// has failed for good and is compensated.
    pub fn then_continue(mut self) -> Self {
        self.giving_up = Some(GivingUp::Continue);
        self
    }

    /// The pause after this many failed tries; `None` when there is to be no further one. `seed` decides the jitter, of up to a
    /// fifth either way, so that those who failed together do not come back together.
    pub(crate) fn pause(&self, failed: u32, seed: u128) -> Option<Duration> {
        if failed >= self.attempts {
            return None;
        }
        let exponent = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX).min(64);
        let plain = (self.first.as_secs_f64() * self.factor.powi(exponent)).min(self.longest.as_secs_f64());
        let spread = if self.jitter { 0.8 + 0.4 * fraction(seed, failed) } else { 1.0 };
        Some(Duration::try_from_secs_f64(plain * spread).unwrap_or(self.longest))
    }
}

/// A number from 0 to 1 that looks random and depends on the arguments only.
fn fraction(seed: u128, failed: u32) -> f64 {
    let mut bits = (seed as u64) ^ ((seed >> 64) as u64) ^ u64::from(failed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from((bits >> 33) as u32) / f64::from(1_u32 << 31)
}

/// Which work a step's completion is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// A checkpoint follows the body; what comes next starts when it is committed.
    #[default]
    Checkpoint,
    /// No checkpoint of its own: after a crash the body may run again although what came next had begun. For bodies that are
    /// cheap and without effects.
    Replayable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_the_attempts() {
        let retry = Retry::exponential(Duration::from_secs(1)).max_attempts(10).without_jitter();
        let pauses: Vec<_> = (1..=10).map(|failed| retry.pause(failed, 0).map(|pause| pause.as_secs())).collect();
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 60, 60].map(Some));
        assert_eq!(pauses[9], None);
        assert_eq!(Retry::never().pause(1, 0), None);
    }

    #[test]
    fn jitter_spreads_pauses_by_a_fifth_either_way() {
        let retry = Retry::exponential(Duration::from_secs(10));
        let pauses: Vec<_> = (0..1_000).filter_map(|seed| retry.pause(1, seed << 7)).collect();
        assert!(pauses.iter().all(|pause| (8.0..=12.0).contains(&pause.as_secs_f64())));
        assert!(pauses.iter().any(|pause| pause.as_secs_f64() < 8.5) && pauses.iter().any(|pause| pause.as_secs_f64() > 11.5));
    }
}
