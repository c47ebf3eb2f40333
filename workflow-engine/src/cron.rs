//! Times of a calendar, for recurring branches.

use chrono_tz::Tz;
use latchwork_core::clock::{Timestamp, between, whole_micros};
use std::{fmt, str::FromStr, time::Duration};

/// How late a tick may be noticed and still count as on time.
const LATE: Duration = Duration::from_secs(60);

/// What happens with ticks that nobody was there for: all nodes were down, the instance was suspended, or the round before took longer.
/// A tick counts as missed when it is noticed more than a minute late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MissedTicks {
    /// One round at once, for all that were missed.
    #[default]
    RunOnce,
    /// None: the next round is at the next time of the calendar.
    Skip,
}

/// Times of a calendar: a cron pattern, in a time zone.
///
/// Five fields (minute, hour, day of month, month, day of week), or six with seconds first, as the crate [`croner`] reads them: names of
/// months and days, lists, ranges, steps, `L`, `W` and `#` are known. Around a change of the clocks, fixed times in the hour that is left out
/// come when it is over, and those in the hour that comes twice come once.
///
/// ```
/// use latchwork_engine::{Cron, MissedTicks};
///
/// let mornings = Cron::new("0 9 * * MON-FRI").in_zone("Europe/Berlin").missed(MissedTicks::Skip);
/// # let _ = mornings;
/// ```
///
/// A pattern or zone that is not known is an error when the workflow's definition is built.
#[derive(Clone)]
#[must_use = "a calendar does nothing until it is given to `recur_cron`"]
pub struct Cron {
    text: String,
    zone: String,
    missed: MissedTicks,
    parsed: Result<(croner::Cron, Tz), String>,
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron").field("pattern", &self.text).field("zone", &self.zone).field("missed", &self.missed).finish()
    }
}

impl Cron {
    /// The times of this pattern, in UTC.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self { text: pattern.into(), zone: "UTC".into(), missed: MissedTicks::default(), parsed: Err(String::new()) }.parsed()
    }

    /// In this time zone, by its name in the IANA database, for example `America/New_York`.
    pub fn in_zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self.parsed()
    }

    /// What happens with missed ticks. Default: [`MissedTicks::RunOnce`].
    pub fn missed(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    fn parsed(mut self) -> Self {
        self.parsed = croner::Cron::from_str(&self.text)
            .map_err(|error| format!("the cron pattern `{}` cannot be read: {error}", self.text))
            .and_then(|cron| {
                let zone =
                    self.zone.parse().map_err(|_| format!("there is no time zone `{}` in the IANA database", self.zone))?;
                Ok((cron, zone))
            });
        self
    }

    /// What is wrong with it, if anything.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.parsed.as_ref().err().map(String::as_str)
    }

    /// The first time after this one; `None` when there is none.
    #[must_use]
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let (cron, zone) = self.parsed.as_ref().ok()?;
        let next = cron.find_next_occurrence(&time.with_timezone(zone), false).ok()?;
        Some(whole_micros(next.to_utc()))
    }

    /// Whether a tick that was due then runs when it is noticed now.
    pub(crate) fn runs(&self, due: Timestamp, now: Timestamp) -> bool {
        self.missed == MissedTicks::RunOnce || between(due, now) <= LATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn times_are_those_of_the_zone_also_when_its_clocks_change() {
        let nine = Cron::new("0 9 * * *").in_zone("Europe/Berlin");
        assert_eq!(nine.next_after(at("2030-03-29T12:00:00Z")), Some(at("2030-03-30T08:00:00Z")));
        // The clocks go forward on 2030-03-31.
        assert_eq!(nine.next_after(at("2030-03-30T08:00:00Z")), Some(at("2030-03-31T07:00:00Z")));
        assert_eq!(Cron::new("0 9 * * *").next_after(at("2030-03-31T09:00:00Z")), Some(at("2030-04-01T09:00:00Z")));
        let skipped = Cron::new("30 2 * * *").in_zone("Europe/Berlin");
        let day = skipped.next_after(at("2030-03-30T12:00:00Z")).expect("a time");
        assert_eq!(day.date_naive().to_string(), "2030-03-31", "a time that does not exist on that day still comes: {day}");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        assert!(Cron::new("every day").problem().is_some_and(|problem| problem.contains("`every day`")));
        let nowhere = Cron::new("0 9 * * *").in_zone("Europe/Atlantis");
        assert_eq!(nowhere.problem(), Some("there is no time zone `Europe/Atlantis` in the IANA database"));
        assert_eq!(nowhere.next_after(at("2030-01-01T00:00:00Z")), None);
    }

    #[test]
    fn a_tick_is_missed_after_a_minute() {
        let (due, late) = (at("2030-01-01T09:00:00Z"), at("2030-01-01T09:01:01Z"));
        let skip = Cron::new("0 9 * * *").missed(MissedTicks::Skip);
        assert_eq!((skip.runs(due, due), skip.runs(due, late)), (true, false));
        assert!(Cron::new("0 9 * * *").runs(due, late));
    }
}
