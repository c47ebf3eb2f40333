//! The queue suite finds what it is for: each fault here is planted in a sound queue, and a case names it.
#![cfg(feature = "queue")]

use latchwork_core::{
    queue::{Delivery, QueueCapabilities, QueueDepth, QueueError, QueueKind, QueueProvider, Settle, Settlement, WorkItem},
    store::InstanceId,
};
use latchwork_queue_local::LocalQueue;
use latchwork_testkit::queue::{BoxError, QueueFixture, Verdict, async_trait, cases, run, run_all};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// What the queue does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    LosesWhatIsDropped,
    IgnoresDelays,
    CountsNacks,
    SwallowsWhatArrivesInHand,
    HoldsFreshHintsBack,
    ForgetsTheMaximum,
    DoesNotWait,
    DoesNotWake,
    TurnsBatchesRound,
    KeepsNoLease,
    LosesWhatADroppedDequeueTook,
    SettlesByName,
    IgnoresStop,
    MiscountsWhatIsInHand,
    KeepsCopies,
}

#[derive(Debug, Default)]
struct Memory {
    in_hand: HashSet<InstanceId>,
    delayed: HashSet<InstanceId>,
    current: HashMap<InstanceId, Delivery>,
}

#[derive(Debug)]
struct Faulty {
    fault: Fault,
    sound: LocalQueue,
    memory: Arc<Mutex<Memory>>,
}

struct FaultySettle {
    fault: Fault,
    instance: InstanceId,
    /// `None` where the fault keeps it elsewhere.
    sound: Option<Delivery>,
    memory: Arc<Mutex<Memory>>,
}

fn lock(memory: &Mutex<Memory>) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Settle for FaultySettle {
    fn settle(self: Box<Self>, outcome: Settlement, reply: Option<oneshot::Sender<Result<(), QueueError>>>) {
        let sound = {
            let mut memory = lock(&self.memory);
            memory.in_hand.remove(&self.instance);
            if matches!(outcome, Settlement::Nack { delay } if !delay.is_zero()) {
                memory.delayed.insert(self.instance.clone());
            }
            self.sound.or_else(|| memory.current.remove(&self.instance))
        };
        if let Some(sound) = sound {
            match (outcome, self.fault) {
                (Settlement::Ack, _) | (Settlement::Abandoned, Fault::LosesWhatIsDropped) => sound.ack_later(),
                (Settlement::Nack { .. }, Fault::IgnoresDelays) => sound.nack_later(Duration::ZERO),
                (Settlement::Abandoned, _) | (Settlement::Nack { .. }, Fault::CountsNacks) => drop(sound),
                (Settlement::Nack { delay }, _) => sound.nack_later(delay),
            }
        }
        if let Some(reply) = reply {
            let _ = reply.send(Ok(()));
        }
    }
}

/// Acknowledges what it holds when it is dropped.
struct Loses(Vec<Delivery>);

impl Drop for Loses {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Delivery::ack_later);
    }
}

#[async_trait]
impl QueueProvider for Faulty {
    fn capabilities(&self) -> QueueCapabilities {
        self.sound.capabilities()
    }

    async fn enqueue(&self, queue: QueueKind, items: &[WorkItem]) -> Result<(), QueueError> {
        let mut items = items.to_vec();
        items.retain(|item| {
            let memory = lock(&self.memory);
            match self.fault {
                Fault::SwallowsWhatArrivesInHand => !memory.in_hand.contains(&item.instance),
                Fault::HoldsFreshHintsBack => !memory.delayed.contains(&item.instance),
                _ => true,
            }
        });
        if self.fault == Fault::TurnsBatchesRound {
            items.reverse();
        }
        self.sound.enqueue(queue, &items).await
    }

    async fn dequeue(&self, queue: QueueKind, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let (max, wait) = match self.fault {
            Fault::ForgetsTheMaximum => (max * 10, wait),
            Fault::DoesNotWait => (max, Duration::ZERO),
            Fault::DoesNotWake => {
                let first = self.sound.dequeue(queue, max, Duration::ZERO).await?;
                if first.is_empty() {
                    tokio::time::sleep(wait).await;
                }
                drop(first);
                (max, Duration::ZERO)
            }
            _ => (max, wait),
        };
        let mut taken = self.sound.dequeue(queue, max, wait).await?;
        if self.fault == Fault::LosesWhatADroppedDequeueTook {
            let mut held = Loses(taken);
            tokio::time::sleep(Duration::from_millis(2)).await;
            taken = std::mem::take(&mut held.0);
        }
        let wrapped = taken.into_iter().map(|sound| {
            let (item, attempt) = (sound.item().clone(), sound.attempt());
            let instance = item.instance.clone();
            let mut memory = lock(&self.memory);
            memory.in_hand.insert(instance.clone());
            let sound = match self.fault {
                Fault::KeepsNoLease => {
                    sound.nack_later(Duration::ZERO);
                    None
                }
                Fault::SettlesByName => {
                    memory.current.insert(instance.clone(), sound);
                    None
                }
                _ => Some(sound),
            };
            drop(memory);
            Delivery::new(item, attempt, FaultySettle { fault: self.fault, instance, sound, memory: self.memory.clone() })
        });
        Ok(wrapped.collect())
    }

    async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, QueueError> {
        let depth = self.sound.depth(queue).await?;
        Ok(match self.fault {
            Fault::MiscountsWhatIsInHand => QueueDepth::new(depth.waiting, 0, depth.oldest),
            Fault::KeepsCopies => QueueDepth::new(depth.waiting * 5_000, depth.in_hand, depth.oldest),
            _ => depth,
        })
    }

    async fn stop(&self, grace: Duration) -> Result<(), QueueError> {
        if self.fault == Fault::IgnoresStop { Ok(()) } else { self.sound.stop(grace).await }
    }
}

struct Planted {
    fault: Fault,
    queue: LocalQueue,
    memory: Arc<Mutex<Memory>>,
}

impl Planted {
    fn new(fault: Fault) -> Self {
        Self { fault, queue: LocalQueue::new(), memory: Arc::default() }
    }
}

#[async_trait]
impl QueueFixture for Planted {
    type Queue = Faulty;

    async fn node(&self) -> Result<Faulty, BoxError> {
        Ok(Faulty { fault: self.fault, sound: self.queue.clone(), memory: self.memory.clone() })
    }

    fn redelivery_within(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn arrival_within(&self) -> Duration {
        Duration::from_millis(500)
    }
}

macro_rules! finds {
    ($($name:ident: $fault:ident by $case:ident, which says $words:literal;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let fixture = Planted::new(Fault::$fault);
                let failed = run(stringify!($case), cases::$case(&fixture)).await.expect_err("the fault is found");
                assert_eq!(failed.case(), stringify!($case));
                let text = failed.to_string();
                assert!(text.contains(concat!("case `", stringify!($case), "`")) && text.contains($words), "{text}");
            }
        )*
    };
}

finds! {
    a_hint_lost_with_its_delivery_is_found:
        LosesWhatIsDropped by a_dropped_delivery_comes_again, which says "the dropped hint did not come";
    an_ignored_delay_is_found:
        IgnoresDelays by a_nacked_hint_comes_again_after_its_delay, which says "delayed by 400ms came after";
    a_nack_counted_as_an_attempt_is_found:
        CountsNacks by attempts_count_failures_only, which says "the attempt is";
    a_swallowed_hint_is_found:
        SwallowsWhatArrivesInHand by a_hint_that_arrives_in_hand_is_kept, which says "the hint that arrived in hand did not come";
    a_swallowed_hint_is_found_behind_a_delay_too:
        SwallowsWhatArrivesInHand by a_hint_that_arrives_in_hand_does_not_wait_for_a_delay, which says "did not come";
    a_fresh_hint_held_back_is_found:
        HoldsFreshHintsBack by a_fresh_hint_does_not_wait_for_a_delayed_one, which says "a fresh hint beside a delayed one";
    a_forgotten_maximum_is_found:
        ForgetsTheMaximum by no_more_than_asked_for_comes, which says "a dequeue of at most 3 gave 10 hints";
    a_dequeue_that_spins_is_found:
        DoesNotWait by an_empty_dequeue_returns_after_its_wait, which says "should wait for 300ms";
    a_dequeue_that_sleeps_is_found:
        DoesNotWake by a_waiting_dequeue_is_woken, which says "after another node queued a hint";
    a_lost_order_is_found:
        TurnsBatchesRound by hints_come_in_order, which says "out of order";
    a_hint_given_to_two_is_found:
        KeepsNoLease by consumers_share_the_work, which says "came while it was in hand";
    a_hint_lost_with_a_dequeue_is_found:
        LosesWhatADroppedDequeueTook by a_dropped_dequeue_loses_nothing, which says "a hint whose dequeue may have been dropped";
    a_stale_settlement_that_takes_effect_is_found:
        SettlesByName by a_stale_settlement_harms_nothing, which says "after a stale acknowledgement";
    a_stop_that_gives_nothing_back_is_found:
        IgnoresStop by a_stopped_queue_gives_back_and_refuses, which says "that a stopped node gave back did not come";
    a_stop_that_leaves_a_consumer_waiting_is_found:
        IgnoresStop by a_stop_ends_a_waiting_dequeue, which says "still waits";
    a_wrong_depth_is_found:
        MiscountsWhatIsInHand by depth_counts, which says "with 5 hints taken";
    copies_without_bound_are_found:
        KeepsCopies by k12_copies_of_a_waiting_hint_are_bounded, which says "10000 wait";
}

#[tokio::test]
async fn a_sound_queue_passes_and_the_report_says_what_was_skipped() {
    let report = run_all(async || Planted::new(Fault::None)).await;
    assert_eq!(report.failures().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    let skipped = report.results().iter().filter(|(_, result)| matches!(result, Ok(Verdict::Skipped { .. })));
    assert_eq!(
        skipped.map(|(case, _)| *case).collect::<Vec<_>>(),
        [
            "a_dead_consumers_hints_go_to_another",
            "a_settlement_after_death_harms_nothing",
            "namespaces_do_not_see_each_other",
            "long_work_outlasts_the_lease",
        ]
    );
    assert_eq!(report.results().len(), 23);
    assert!(report.to_string().contains("hints_come_in_order: passed"));
    assert!(report.into_result().is_ok());
}

#[tokio::test]
async fn a_report_tells_each_failure_and_goes_on() {
    let report = run_all(async || Planted::new(Fault::LosesWhatIsDropped)).await;
    let failed: Vec<_> = report.failures().map(|failed| failed.case()).collect();
    assert_eq!(failed, ["attempts_count_failures_only", "a_dropped_delivery_comes_again", "a_stale_settlement_harms_nothing"]);
    assert_eq!(report.results().len(), 23);
    assert!(report.to_string().contains("a_dropped_delivery_comes_again: FAILED: the dropped hint did not come"));
    assert_eq!(report.into_result().map_err(|failed| failed.case()), Err("attempts_count_failures_only"));
}
