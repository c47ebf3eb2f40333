//! What this queue has in hand: settling it in batches, and renewing its leases.

use crate::{
    error::{PROVIDER, failed, stopped},
    lanes::{Held, Renewals, Settled, Settlements},
    table::Table,
};
use latchwork_core::{
    limits,
    queue::{Delivery, QueueError, QueueKind, Settle, Settlement, WorkItem},
    store::InstanceId,
};
use latchwork_sqlite_client::{Lane, SqliteClient, SqliteError};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

type Reply = oneshot::Sender<Result<(), QueueError>>;

#[derive(Debug)]
enum Message {
    Settle(Settled, Option<Reply>),
    /// Answered when all that came before has been written.
    Last(Reply),
}

/// The deliveries of one queue that are not settled.
#[derive(Debug)]
pub(crate) struct Hand {
    table: Table,
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

/// Gives back what was claimed for nobody.
#[derive(Clone, Debug)]
pub(crate) struct GiveBack(mpsc::WeakUnboundedSender<Message>);

impl GiveBack {
    pub(crate) fn give_back(&self, queue: QueueKind, claim: i64, instances: impl IntoIterator<Item = InstanceId>) {
        // Without the queue nobody is left to write it; the leases end by themselves.
        let Some(settled) = self.0.upgrade() else { return };
        let outcome = Settlement::Nack { delay: Duration::ZERO };
        for instance in instances {
            let _ = settled.send(Message::Settle(Settled { queue, instance, claim, outcome }, None));
        }
    }
}

/// The receiving end of what deliveries say at their end.
pub(crate) struct Settling(mpsc::UnboundedReceiver<Message>);

impl Hand {
    /// An empty hand, and what [`settle`] and [`renew`] need to serve it.
    pub(crate) fn new(table: Table) -> (Arc<Self>, Settling, CancellationToken) {
        let (settled, settling) = mpsc::unbounded_channel();
        let end = CancellationToken::new();
        let hand = Self { table, held: Mutex::default(), settled, filled: Arc::default(), _renewals: end.clone().drop_guard() };
        (Arc::new(hand), Settling(settling), end)
    }

    pub(crate) fn giver_back(&self) -> GiveBack {
        GiveBack(self.settled.downgrade())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic half-way through a change runs under this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A delivery of what was claimed.
    pub(crate) fn deliver(
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
        Delivery::new(item, attempt, SqliteSettle { hand: self.clone(), key })
    }

    /// Gives back all, and returns when that and what was settled before is written. What is settled later is refused.
    pub(crate) async fn close(&self) -> Result<(), QueueError> {
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
                    let _ = reply.send(Err(stopped()));
                }
                None
            }
        };
        if let Some(mpsc::error::SendError(Message::Settle(_, Some(reply)))) = refused {
            let _ = reply.send(Err(stopped()));
        }
    }

    /// Those whose lease is due for renewal now, and when to look again; `None` when nothing is in hand.
    fn due(&self) -> (Vec<Held>, Option<Duration>) {
        let (third, twelfth) = (self.table.lease / 3, self.table.lease / 12);
        let now = self.table.clock.monotonic();
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

struct SqliteSettle {
    hand: Arc<Hand>,
    key: u64,
}

impl Settle for SqliteSettle {
    fn settle(self: Box<Self>, outcome: Settlement, reply: Option<Reply>) {
        self.hand.settle(self.key, outcome, reply);
    }
}

/// Writes what deliveries say at their end, as much as there is at one moment together. Ends with the queue's last word, or
/// when the queue and all its deliveries are gone.
///
/// It holds the client: a delivery that outlives its queue is settled too.
pub(crate) async fn settle(client: SqliteClient, lane: Lane<Settlements>, mut settling: Settling, bell: Arc<Notify>) {
    let mut messages = Vec::new();
    let mut ended = false;
    while !ended && settling.0.recv_many(&mut messages, limits::STATEMENT_ROWS).await > 0 {
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
        let result = if count == 0 { Ok(false) } else { lane.submit(rows).await };
        if let Err(error) = &result {
            tracing::warn!(
                %error, count, file = %client.path().display(),
                "deliveries could not be settled; their hints come again when the leases end"
            );
        }
        ended = !last.is_empty();
        for reply in replies.into_iter().chain(last) {
            let answer = match &result {
                Ok(_) => Ok(()),
                Err(error) => Err(failed(format!("settle {count} deliveries"), error.clone())),
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
pub(crate) async fn renew(hand: Weak<Hand>, lane: Lane<Renewals>, end: CancellationToken) {
    let work = async {
        loop {
            // Not held over a pause: the hand ends with the queue and its last delivery.
            let Some(held) = hand.upgrade() else { return };
            let (due, next) = held.due();
            if !due.is_empty() {
                let since = held.table.clock.monotonic();
                let asked: Vec<u64> = due.iter().map(|held| held.key).collect();
                match lane.submit(due).await {
                    Ok(kept) => {
                        let lost = held.renewed(&asked, &kept, since);
                        if lost > 0 {
                            tracing::warn!(lost, owner = %held.table.owner, "leases ended before they were renewed; hints come twice");
                        }
                    }
                    Err(error) => report(&error, asked.len()),
                }
            }
            let clock = held.table.clock.clone();
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

fn report(error: &SqliteError, count: usize) {
    tracing::warn!(%error, count, provider = PROVIDER, "leases could not be renewed; the next round tries again");
}
