//! What a queue has in hand: settling it in batches, and renewing its leases.

use super::{GiveBack, Held, LeaseTable, Leasing, Settled};
use crate::{
    limits,
    queue::{Delivery, QueueError, QueueKind, Settle, Settlement, WorkItem},
    store::InstanceId,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

type Reply = oneshot::Sender<Result<(), QueueError>>;

#[derive(Debug)]
pub(super) enum Message {
    Settle(Settled, Option<Reply>),
    /// Answered when all that came before has been written.
    Last(Reply),
}

/// The deliveries of one queue that are not settled.
#[derive(Debug)]
pub struct Hand {
    provider: &'static str,
    leasing: Leasing,
    held: Mutex<State>,
    settled: mpsc::UnboundedSender<Message>,
    /// Rung when there is something to renew, after there was nothing.
    filled: Arc<Notify>,
    /// Ends the renewals with the last delivery of a queue that is gone.
    _renewals: DropGuard,
}

#[derive(Debug, Default)]
struct State {
    /// By key, and so in the order in which they were handed out.
    deliveries: BTreeMap<u64, InHand>,
    next: u64,
    /// The renewals found nothing to do, and wait to be told.
    idle: bool,
}

#[derive(Debug)]
struct InHand {
    queue: QueueKind,
    instance: InstanceId,
    claim: i64,
    /// When its lease was renewed last, by the monotonic clock.
    renewed: Duration,
    /// The lease ended and somebody else has the hint.
    lost: bool,
}

impl Hand {
    /// An empty hand, and two tasks that serve it: they end with the queue and its last delivery. `bell` is rung when what was
    /// settled waits again.
    ///
    /// Needs a Tokio runtime.
    pub fn start<T: LeaseTable>(table: T, leasing: Leasing, bell: Arc<Notify>) -> Arc<Self> {
        let (settled, settling) = mpsc::unbounded_channel();
        let end = CancellationToken::new();
        let hand = Arc::new(Self {
            provider: T::PROVIDER,
            leasing,
            held: Mutex::default(),
            settled,
            filled: Arc::default(),
            _renewals: end.clone().drop_guard(),
        });
        let table = Arc::new(table);
        tokio::spawn(settle(table.clone(), hand.leasing.owner.clone(), settling, bell));
        tokio::spawn(renew(Arc::downgrade(&hand), table, end));
        hand
    }

    /// What gives back the claims that nobody waits for any more.
    #[must_use]
    pub fn giver_back(&self) -> GiveBack {
        GiveBack(self.settled.downgrade())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic half-way through a change runs under this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A delivery of what was claimed.
    pub(super) fn deliver(
        self: &Arc<Self>,
        queue: QueueKind,
        item: WorkItem,
        attempt: u32,
        claim: i64,
        since: Duration,
    ) -> Delivery {
        let mut state = self.state();
        state.next += 1;
        let key = state.next;
        let in_hand = InHand { queue, instance: item.instance.clone(), claim, renewed: since, lost: false };
        state.deliveries.insert(key, in_hand);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        if idle {
            self.filled.notify_one();
        }
        Delivery::new(item, attempt, HandSettle { hand: self.clone(), key })
    }

    /// Gives back all, and returns when that and what was settled before is written. What is settled later is refused.
    ///
    /// # Errors
    /// [`QueueError`] when what was settled last could not be written.
    pub async fn close(&self) -> Result<(), QueueError> {
        let held = std::mem::take(&mut self.state().deliveries);
        let outcome = Settlement::Nack { delay: Duration::ZERO };
        for InHand { queue, instance, claim, .. } in held.into_values() {
            let _ = self.settled.send(Message::Settle(Settled { queue, instance, claim, outcome }, None));
        }
        let (reply, written) = oneshot::channel();
        // No answer: it was closed before.
        let _ = self.settled.send(Message::Last(reply));
        written.await.unwrap_or(Ok(()))
    }

    fn settle(&self, key: u64, outcome: Settlement, reply: Option<Reply>) {
        let mut state = self.state();
        let held = state.deliveries.remove(&key);
        drop(state);
        let refused = match held {
            Some(InHand { queue, instance, claim, .. }) => {
                self.settled.send(Message::Settle(Settled { queue, instance, claim, outcome }, reply)).err()
            }
            None => {
                if let Some(reply) = reply {
                    // The caller may have stopped waiting.
                    let _ = reply.send(Err(QueueError::stopped(self.provider)));
                }
                None
            }
        };
        if let Some(mpsc::error::SendError(Message::Settle(_, Some(reply)))) = refused {
            let _ = reply.send(Err(QueueError::stopped(self.provider)));
        }
    }

    /// Those whose lease is due for renewal now, and when to look again; `None` when nothing is in hand.
    fn due(&self) -> (Vec<Held>, Option<Duration>) {
        let (third, twelfth) = (self.leasing.lease / 3, self.leasing.lease / 12);
        let now = self.leasing.clock.monotonic();
        // What is nearly due goes along, so that there are few rounds.
        let soon = now.saturating_add(twelfth);
        let mut due = Vec::new();
        let mut next: Option<Duration> = None;
        let mut state = self.state();
        for (key, held) in state.deliveries.iter().filter(|(_, held)| !held.lost) {
            let at = held.renewed.saturating_add(third);
            if at <= soon {
                due.push(Held { key: *key, queue: held.queue, instance: held.instance.clone(), claim: held.claim });
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        if !due.is_empty() {
            next = Some(soon);
        }
        state.idle = next.is_none();
        (due, next)
    }

    /// Notes which of `asked` were renewed at `since`, and returns how many were not, though they are in hand.
    fn renewed(&self, asked: &[u64], kept: &HashSet<u64>, since: Duration) -> usize {
        let mut state = self.state();
        let mut lost = 0;
        for key in asked {
            // What was settled meanwhile is not in the file any more, and nobody's loss.
            let Some(held) = state.deliveries.get_mut(key) else { continue };
            if kept.contains(key) {
                held.renewed = since;
            } else {
                held.lost = true;
                lost += 1;
            }
        }
        lost
    }
}

struct HandSettle {
    hand: Arc<Hand>,
    key: u64,
}

impl Settle for HandSettle {
    fn settle(self: Box<Self>, outcome: Settlement, reply: Option<Reply>) {
        self.hand.settle(self.key, outcome, reply);
    }
}

/// Writes what deliveries say at their end, as much as there is at one moment together. Ends with the queue's last word, or
/// when the queue and all its deliveries are gone: a delivery that outlives its queue is settled too.
async fn settle<T: LeaseTable>(
    table: Arc<T>,
    owner: Arc<str>,
    mut settling: mpsc::UnboundedReceiver<Message>,
    bell: Arc<Notify>,
) {
    let mut messages = Vec::new();
    let mut ended = false;
    while !ended && settling.recv_many(&mut messages, limits::STATEMENT_ROWS).await > 0 {
        let (mut rows, mut replies, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for message in messages.drain(..) {
            match message {
                Message::Settle(row, reply) => {
                    rows.push(row);
                    replies.extend(reply);
                }
                Message::Last(reply) => last.push(reply),
            }
        }
        let count = rows.len();
        let result = if count == 0 { Ok(false) } else { table.settle(rows).await };
        if let Err(error) = &result {
            tracing::warn!(
                %error, count, %owner, provider = T::PROVIDER,
                "deliveries could not be settled; their hints come again when the leases end"
            );
        }
        ended = !last.is_empty();
        for reply in replies.into_iter().chain(last) {
            let answer = match &result {
                Ok(_) => Ok(()),
                Err(error) => Err(T::failed(format!("settle {count} deliveries"), error.clone())),
            };
            // The caller may have stopped waiting.
            let _ = reply.send(answer);
        }
        if matches!(result, Ok(true)) {
            bell.notify_waiters();
        }
    }
}

/// Renews the leases of what is in hand, all that are due in one statement. With nothing in hand it sleeps.
async fn renew<T: LeaseTable>(hand: Weak<Hand>, table: Arc<T>, end: CancellationToken) {
    let work = async {
        loop {
            // Not held over a pause: the hand ends with the queue and its last delivery.
            let Some(held) = hand.upgrade() else { return };
            let (due, next) = held.due();
            if !due.is_empty() {
                let (clock, owner) = (&held.leasing.clock, &held.leasing.owner);
                let since = clock.monotonic();
                let asked: Vec<u64> = due.iter().map(|held| held.key).collect();
                match table.renew(due).await {
                    Ok(kept) => {
                        let lost = held.renewed(&asked, &kept, since);
                        if lost > 0 {
                            tracing::warn!(lost, %owner, "leases ended before they were renewed; hints come twice");
                        }
                    }
                    Err(error) => {
                        let count = asked.len();
                        tracing::warn!(
                            %error, count, %owner, provider = T::PROVIDER,
                            "leases could not be renewed; the next round tries again"
                        );
                    }
                }
            }
            let clock = held.leasing.clock.clone();
            let filled = held.filled.clone();
            drop(held);
            match next {
                Some(at) => clock.sleep_until(at).await,
                None => filled.notified().await,
            }
        }
    };
    end.run_until_cancelled(work).await;
}
