//! The state of one queue: which hints are there, and where each of them stands. Everything here is synchronous, short, and
//! under the provider's lock.

use latchwork_core::{
    queue::{QueueDepth, Settlement, WorkItem},
    store::InstanceId,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

/// Times are those of the clock's `monotonic`.
#[derive(Debug)]
pub(crate) struct Line {
    capacity: usize,
    hints: HashMap<InstanceId, Hint>,
    /// Each hint whose place is `Ready`, once, in order.
    ready: VecDeque<InstanceId>,
    /// Each hint whose place is `Delayed`, once, by due time and order.
    delayed: BTreeMap<(Duration, u64), InstanceId>,
    /// Numbers for deliveries and delays; never given twice.
    next: u64,
    dropped: u64,
    /// Whether a drop was reported, and the queue has not been half empty since.
    reported: bool,
}

#[derive(Debug)]
struct Hint {
    item: WorkItem,
    /// Deliveries that were abandoned.
    failures: u32,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Ready { since: Duration },
    Delayed { due: Duration, turn: u64 },
    InHand { delivery: u64, holder: u64, again: bool },
}

/// A hint that was handed out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) item: WorkItem,
    pub(crate) attempt: u32,
    pub(crate) delivery: u64,
}

/// What waiting consumers should know after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// There is a hint to take.
    pub(crate) ready: bool,
    /// The next delayed hint is due earlier than before.
    pub(crate) earlier: bool,
    /// Hints were dropped for the first time since the queue was half empty.
    pub(crate) full: bool,
}

impl Line {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            hints: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeMap::new(),
            next: 0,
            dropped: 0,
            reported: false,
        }
    }

    pub(crate) fn enqueue(&mut self, items: &[WorkItem], now: Duration) -> News {
        let mut news = News::default();
        let mut room = self.capacity.saturating_sub(self.hints.len());
        for item in items {
            match self.hints.entry(item.instance.clone()) {
                Entry::Vacant(_) if room == 0 => {
                    self.dropped += 1;
                    news.full |= !self.reported;
                    self.reported = true;
                }
                Entry::Vacant(free) => {
                    room -= 1;
                    free.insert(Hint { item: item.clone(), failures: 0, place: Place::Ready { since: now } });
                    self.ready.push_back(item.instance.clone());
                    news.ready = true;
                }
                Entry::Occupied(mut known) => match &mut known.get_mut().place {
                    Place::Ready { .. } => {}
                    Place::InHand { again, .. } => *again = true,
                    Place::Delayed { due, turn } => {
                        self.delayed.remove(&(*due, *turn));
                        known.get_mut().place = Place::Ready { since: now };
                        self.ready.push_back(item.instance.clone());
                        news.ready = true;
                    }
                },
            }
        }
        news
    }

    /// Hands out up to `max` hints to `holder`.
    pub(crate) fn take(&mut self, max: usize, now: Duration, holder: u64) -> Vec<Taken> {
        self.wake(now);
        let mut taken = Vec::with_capacity(max.min(self.ready.len()));
        while taken.len() < max {
            let Some(instance) = self.ready.pop_front() else { break };
            let Some(hint) = self.hints.get_mut(&instance) else { continue };
            self.next += 1;
            hint.place = Place::InHand { delivery: self.next, holder, again: false };
            let attempt = hint.failures.saturating_add(1);
            taken.push(Taken { item: hint.item.clone(), attempt, delivery: self.next });
        }
        taken
    }

    /// Whether there is a hint to take, as of the last call with a time.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next delayed hint is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.delayed.keys().next().map(|(due, _)| *due)
    }

    /// Settles one delivery; `None` when it is none any more.
    pub(crate) fn settle(&mut self, instance: &InstanceId, delivery: u64, outcome: Settlement, now: Duration) -> Option<News> {
        let hint = self.hints.get_mut(instance)?;
        let Place::InHand { delivery: current, again, .. } = hint.place else { return None };
        if current != delivery {
            return None;
        }
        match outcome {
            Settlement::Ack if !again => {
                self.hints.remove(instance);
                if self.hints.len() <= self.capacity / 2 {
                    self.reported = false;
                }
                return Some(News::default());
            }
            Settlement::Ack => hint.failures = 0,
            Settlement::Nack { .. } => {}
            Settlement::Abandoned => hint.failures = hint.failures.saturating_add(1),
        }
        match outcome {
            // What arrived in hand does not wait for the delay of what was in hand.
            Settlement::Nack { delay } if !again && !delay.is_zero() => {
                let due = now.saturating_add(delay);
                let earlier = self.next_due().is_none_or(|next| due < next);
                self.next += 1;
                let turn = self.next;
                if let Some(hint) = self.hints.get_mut(instance) {
                    hint.place = Place::Delayed { due, turn };
                }
                self.delayed.insert((due, turn), instance.clone());
                Some(News { earlier, ..News::default() })
            }
            _ => {
                hint.place = Place::Ready { since: now };
                self.ready.push_back(instance.clone());
                Some(News { ready: true, ..News::default() })
            }
        }
    }

    /// Gives back all that `holder` has in hand, in the order in which it was taken.
    pub(crate) fn give_back(&mut self, holder: u64, now: Duration) -> News {
        let held = self.hints.iter().filter_map(|(instance, hint)| match hint.place {
            Place::InHand { delivery, holder: by, .. } if by == holder => Some((delivery, instance.clone())),
            _ => None,
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        let mut news = News::default();
        for (delivery, instance) in held {
            let back = self.settle(&instance, delivery, Settlement::Nack { delay: Duration::ZERO }, now);
            news.ready |= back.is_some();
        }
        news
    }

    pub(crate) fn depth(&mut self, now: Duration) -> QueueDepth {
        self.wake(now);
        let waiting = self.ready.len() + self.delayed.len();
        let oldest = self.ready.front().and_then(|instance| match self.hints.get(instance)?.place {
            Place::Ready { since } => Some(now.saturating_sub(since)),
            Place::Delayed { .. } | Place::InHand { .. } => None,
        });
        let in_hand = self.hints.len().saturating_sub(waiting);
        QueueDepth::new(waiting as u64, in_hand as u64, oldest).with_bound(self.capacity as u64, self.dropped)
    }

    /// Moves the delayed hints that are due to the ready ones.
    fn wake(&mut self, now: Duration) {
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let instance = first.remove();
            if let Some(hint) = self.hints.get_mut(&instance) {
                hint.place = Place::Ready { since: now };
                self.ready.push_back(instance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const LATER: Duration = Duration::from_secs(200);

    fn item() -> WorkItem {
        WorkItem::new(InstanceId::new(), "order", 1)
    }

    fn take_one(line: &mut Line, now: Duration) -> Option<Taken> {
        line.take(1, now, 1).pop()
    }

    #[test]
    fn a_waiting_hint_is_not_queued_twice() {
        let (mut line, item) = (Line::new(10), item());
        assert!(line.enqueue(std::slice::from_ref(&item), NOW).ready);
        assert_eq!(line.enqueue(&[item.clone(), item], NOW), News::default());
        assert_eq!(line.take(10, NOW, 1).len(), 1);
    }

    #[test]
    fn a_full_line_drops_what_is_new_and_says_so_once_until_it_is_half_empty() {
        let mut line = Line::new(2);
        let (first, second) = (item(), item());
        line.enqueue(&[first.clone(), second.clone()], NOW);
        assert!(line.enqueue(&[item()], NOW).full);
        assert!(!line.enqueue(&[item()], NOW).full);
        assert_eq!(line.depth(NOW).dropped, 2);
        // A hint that is known needs no room.
        let taken = take_one(&mut line, NOW).expect("the first");
        assert_eq!(taken.item, first);
        line.enqueue(&[first.clone()], NOW);
        assert!(line.settle(&first.instance, taken.delivery, Settlement::Ack, NOW).expect("current").ready);
        for _ in 0..2 {
            let taken = take_one(&mut line, NOW).expect("one of two");
            line.settle(&taken.item.instance, taken.delivery, Settlement::Ack, NOW);
        }
        line.enqueue(&[item(), item()], NOW);
        assert!(line.enqueue(&[item()], NOW).full);
    }

    #[test]
    fn a_delayed_hint_comes_when_it_is_due_and_tells_when_that_is() {
        let (mut line, item) = (Line::new(10), item());
        line.enqueue(&[item], NOW);
        let taken = take_one(&mut line, NOW).expect("taken");
        let delay = Settlement::Nack { delay: LATER - NOW };
        let news = line.settle(&taken.item.instance, taken.delivery, delay, NOW).expect("current");
        assert_eq!(news, News { earlier: true, ..News::default() });
        assert_eq!(line.next_due(), Some(LATER));
        assert!(take_one(&mut line, LATER - Duration::from_nanos(1)).is_none());
        assert_eq!(take_one(&mut line, LATER).map(|taken| taken.attempt), Some(1));
    }

    #[test]
    fn a_settlement_of_an_earlier_delivery_changes_nothing() {
        let (mut line, item) = (Line::new(10), item());
        line.enqueue(std::slice::from_ref(&item), NOW);
        let first = take_one(&mut line, NOW).expect("first");
        line.give_back(1, NOW);
        let second = take_one(&mut line, NOW).expect("second");
        assert_eq!(line.settle(&item.instance, first.delivery, Settlement::Ack, NOW), None);
        assert!(line.settle(&item.instance, second.delivery, Settlement::Ack, NOW).is_some());
        assert_eq!(line.settle(&item.instance, second.delivery, Settlement::Abandoned, NOW), None);
        assert_eq!(line.depth(NOW).waiting, 0);
    }

    #[test]
    fn what_is_given_back_keeps_its_order() {
        let mut line = Line::new(100);
        let items: Vec<WorkItem> = (0..50).map(|_| item()).collect();
        line.enqueue(&items, NOW);
        assert_eq!(line.take(50, NOW, 7).len(), 50);
        assert!(line.give_back(7, NOW).ready);
        let again: Vec<WorkItem> = line.take(50, NOW, 8).into_iter().map(|taken| taken.item).collect();
        assert_eq!(again, items);
    }

    #[test]
    fn a_million_hints_leave_nothing_behind() {
        let mut line = Line::new(100);
        let items: Vec<WorkItem> = (0..100).map(|_| item()).collect();
        for _ in 0..10_000 {
            line.enqueue(&items, NOW);
            for taken in line.take(100, NOW, 1) {
                line.settle(&taken.item.instance, taken.delivery, Settlement::Ack, NOW);
            }
        }
        assert!(line.hints.is_empty() && line.ready.is_empty() && line.delayed.is_empty());
        assert!(line.ready.capacity() <= 256, "{}", line.ready.capacity());
        assert!(line.hints.capacity() <= 512, "{}", line.hints.capacity());
    }
}
