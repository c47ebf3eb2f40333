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
    /// The slot of each instance that has a hint.
    slots: HashMap<InstanceId, Slot>,
    /// The hints by slot: what is handed out finds its hint again without looking for the instance.
    hints: Vec<Option<Hint>>,
    free: Vec<Slot>,
    /// Each hint whose place is `Ready`, once, in order.
    ready: VecDeque<Slot>,
    /// Each hint whose place is `Delayed`, once, by due time and order.
    delayed: BTreeMap<(Duration, u64), Slot>,
    /// Numbers for deliveries and delays; never given twice.
    next: u64,
    dropped: u64,
    /// Whether a drop was reported, and the queue has not been half empty since.
    reported: bool,
}

type Slot = usize;

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
    pub(crate) ticket: Ticket,
}

/// Names one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    delivery: u64,
    slot: Slot,
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
            slots: HashMap::new(),
            hints: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            delayed: BTreeMap::new(),
            next: 0,
            dropped: 0,
            reported: false,
        }
    }

    pub(crate) fn enqueue(&mut self, items: &[WorkItem], now: Duration) -> News {
        let mut news = News::default();
        let mut room = self.capacity.saturating_sub(self.slots.len());
        for item in items {
            let slot = match self.slots.entry(item.instance.clone()) {
                Entry::Vacant(_) if room == 0 => {
                    self.dropped += 1;
                    news.full |= !self.reported;
                    self.reported = true;
                    continue;
                }
                Entry::Vacant(entry) => {
                    room -= 1;
                    let slot = self.free.pop().unwrap_or_else(|| {
                        self.hints.push(None);
                        self.hints.len() - 1
                    });
                    let hint = Hint { item: item.clone(), failures: 0, place: Place::Ready { since: now } };
                    // A free slot is one of the hints' own.
                    if let Some(free) = self.hints.get_mut(slot) {
                        *free = Some(hint);
                    }
                    entry.insert(slot);
                    slot
                }
                Entry::Occupied(entry) => {
                    let slot = *entry.get();
                    let Some(hint) = self.hints.get_mut(slot).and_then(Option::as_mut) else { continue };
                    match &mut hint.place {
                        Place::Ready { .. } => continue,
                        Place::InHand { again, .. } => {
                            *again = true;
                            continue;
                        }
                        Place::Delayed { due, turn } => {
                            self.delayed.remove(&(*due, *turn));
                            hint.place = Place::Ready { since: now };
                        }
                    }
                    slot
                }
            };
            self.ready.push_back(slot);
            news.ready = true;
        }
        news
    }

    /// Hands out up to `max` hints to `holder`.
    pub(crate) fn take(&mut self, max: usize, now: Duration, holder: u64) -> Vec<Taken> {
        self.wake(now);
        let mut taken = Vec::with_capacity(max.min(self.ready.len()));
        while taken.len() < max {
            let Some(slot) = self.ready.pop_front() else { break };
            let Some(hint) = self.hints.get_mut(slot).and_then(Option::as_mut) else { continue };
            self.next += 1;
            hint.place = Place::InHand { delivery: self.next, holder, again: false };
            let attempt = hint.failures.saturating_add(1);
            taken.push(Taken { item: hint.item.clone(), attempt, ticket: Ticket { delivery: self.next, slot } });
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
    pub(crate) fn settle(&mut self, ticket: Ticket, outcome: Settlement, now: Duration) -> Option<News> {
        let place = self.hints.get_mut(ticket.slot)?;
        let hint = place.as_mut()?;
        let Place::InHand { delivery, again, .. } = hint.place else { return None };
        if delivery != ticket.delivery {
            return None;
        }
        let delay = match outcome {
            Settlement::Ack if !again => {
                if let Some(hint) = place.take() {
                    self.slots.remove(&hint.item.instance);
                }
                self.free.push(ticket.slot);
                if self.slots.len() <= self.capacity / 2 {
                    self.reported = false;
                }
                return Some(News::default());
            }
            Settlement::Ack => {
                hint.failures = 0;
                Duration::ZERO
            }
            // What arrived in hand does not wait for the delay of what was in hand.
            Settlement::Nack { .. } if again => Duration::ZERO,
            Settlement::Nack { delay } => delay,
            Settlement::Abandoned => {
                hint.failures = hint.failures.saturating_add(1);
                Duration::ZERO
            }
        };
        if delay.is_zero() {
            hint.place = Place::Ready { since: now };
            self.ready.push_back(ticket.slot);
            return Some(News { ready: true, ..News::default() });
        }
        self.next += 1;
        let (due, turn) = (now.saturating_add(delay), self.next);
        hint.place = Place::Delayed { due, turn };
        let earlier = self.next_due().is_none_or(|next| due < next);
        self.delayed.insert((due, turn), ticket.slot);
        Some(News { earlier, ..News::default() })
    }

    /// Gives back all that `holder` has in hand, in the order in which it was taken.
    pub(crate) fn give_back(&mut self, holder: u64, now: Duration) -> News {
        let held = self.hints.iter().enumerate().filter_map(|(slot, hint)| match hint.as_ref()?.place {
            Place::InHand { delivery, holder: by, .. } if by == holder => Some(Ticket { delivery, slot }),
            _ => None,
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        let mut news = News::default();
        for ticket in held {
            let back = self.settle(ticket, Settlement::Nack { delay: Duration::ZERO }, now);
            news.ready |= back.is_some();
        }
        news
    }

    pub(crate) fn depth(&mut self, now: Duration) -> QueueDepth {
        self.wake(now);
        let waiting = self.ready.len() + self.delayed.len();
        let oldest = self.ready.front().and_then(|slot| match self.hints.get(*slot)?.as_ref()?.place {
            Place::Ready { since } => Some(now.saturating_sub(since)),
            Place::Delayed { .. } | Place::InHand { .. } => None,
        });
        let in_hand = self.slots.len().saturating_sub(waiting);
        QueueDepth::new(waiting as u64, in_hand as u64, oldest).with_bound(self.capacity as u64, self.dropped)
    }

    /// Moves the delayed hints that are due to the ready ones.
    fn wake(&mut self, now: Duration) {
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let slot = first.remove();
            if let Some(hint) = self.hints.get_mut(slot).and_then(Option::as_mut) {
                hint.place = Place::Ready { since: now };
                self.ready.push_back(slot);
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
        line.enqueue(std::slice::from_ref(&first), NOW);
        assert!(line.settle(taken.ticket, Settlement::Ack, NOW).expect("current").ready);
        for _ in 0..2 {
            let taken = take_one(&mut line, NOW).expect("one of two");
            line.settle(taken.ticket, Settlement::Ack, NOW);
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
        let news = line.settle(taken.ticket, delay, NOW).expect("current");
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
        assert_eq!(line.settle(first.ticket, Settlement::Ack, NOW), None);
        assert!(line.settle(second.ticket, Settlement::Ack, NOW).is_some());
        assert_eq!(line.settle(second.ticket, Settlement::Abandoned, NOW), None);
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
    fn k29_a_million_hints_leave_nothing_behind() {
        let mut line = Line::new(100);
        let items: Vec<WorkItem> = (0..100).map(|_| item()).collect();
        for _ in 0..10_000 {
            line.enqueue(&items, NOW);
            for taken in line.take(100, NOW, 1) {
                line.settle(taken.ticket, Settlement::Ack, NOW);
            }
        }
        assert!(line.slots.is_empty() && line.ready.is_empty() && line.delayed.is_empty());
        assert_eq!((line.hints.len(), line.free.len()), (100, 100));
        assert!(line.ready.capacity() <= 256, "{}", line.ready.capacity());
        assert!(line.slots.capacity() <= 512, "{}", line.slots.capacity());
    }
}
