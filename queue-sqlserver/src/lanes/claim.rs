use crate::table::Table;
use latchwork_core::{
    limits,
    queue::{
        QueueKind,
        leased::{Claimed, GiveBack},
    },
};
use latchwork_sqlserver_client::SqlServerError;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// A consumer that waits for up to `max` hints.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) queue: QueueKind,
    pub(crate) max: usize,
    pub(crate) until: Instant,
    pub(crate) reply: oneshot::Sender<Result<Option<Claimed>, SqlServerError>>,
}

/// Who looks for hints, for all waiting consumers of a queue.
#[derive(Debug)]
pub(crate) struct Looking {
    pub(crate) table: Table,
    pub(crate) back: GiveBack,
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
}

struct Looker {
    looking: Looking,
    waiting: Vec<Ask>,
    /// When to look next, unless somebody waits less long or rings.
    next: Instant,
    pause: Duration,
}

/// Looks for hints while consumers wait for them, and not more often than the pauses say: after a ring of this process, or when there
/// is more, at once. One request takes for all of them. Ends with the queue, and when it is stopped.
pub(crate) async fn look(
    looking: Looking,
    mut asked: mpsc::UnboundedReceiver<Ask>,
    bell: Arc<Notify>,
    stopped: CancellationToken,
) {
    let pause = looking.shortest;
    let mut looker = Looker { looking, waiting: Vec::new(), next: Instant::now(), pause };
    // A ring is never missed, also while nobody waits or while a request is under way.
    let mut rung = pin!(bell.notified());
    rung.as_mut().enable();
    loop {
        // Nobody is told that there is nothing without a look.
        let first = looker.waiting.iter().map(|ask| ask.until).min();
        let time = first.map(|first| first.min(looker.next));
        tokio::select! {
            biased;
            () = stopped.cancelled() => return,
            () = rung.as_mut() => {
                rung.set(bell.notified());
                rung.as_mut().enable();
                looker.expect_some();
            }
            ask = asked.recv() => match ask {
                Some(ask) => looker.waiting.push(ask),
                None => return,
            },
            () = until(time) => looker.look().await,
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Looker {
    fn expect_some(&mut self) {
        self.next = Instant::now();
        self.pause = self.looking.shortest;
    }

    /// Takes hints for those who wait, in the order in which they came, and sends away those whose time is over.
    async fn look(&mut self) {
        let now = Instant::now();
        self.waiting.retain(|ask| !ask.reply.is_closed());
        let mut queues: Vec<QueueKind> = Vec::new();
        for ask in &self.waiting {
            if !queues.contains(&ask.queue) {
                queues.push(ask.queue);
            }
        }
        let (mut some, mut all) = (false, false);
        let mut due: Option<Duration> = None;
        for queue in queues {
            let (mine, others) = std::mem::take(&mut self.waiting).into_iter().partition(|ask| ask.queue == queue);
            self.waiting = others;
            let asked = mine.iter().map(|ask: &Ask| ask.max).sum::<usize>().min(limits::STATEMENT_ROWS);
            match self.looking.table.claim(queue, asked, &self.looking.back).await {
                Ok(found) => {
                    some |= !found.claimed.is_empty();
                    all |= found.claimed.len() == asked;
                    due = due.into_iter().chain(found.next).min();
                    self.hand_out(found.claimed, mine, now);
                }
                Err(error) => {
                    for ask in mine {
                        let _ = ask.reply.send(Err(error.clone()));
                    }
                }
            }
        }
        if some || due == Some(Duration::ZERO) {
            self.pause = self.looking.shortest;
        }
        // When all that was asked for came there is probably more.
        let soon = due.filter(|due| !due.is_zero()).map_or(self.pause, |due| due.min(self.pause));
        let pause = if all { Duration::ZERO } else { soon };
        self.next = Instant::now() + pause;
        if !some {
            self.pause = (self.pause * 2).min(self.looking.longest);
        }
    }

    fn hand_out(&mut self, mut claimed: Claimed, asks: Vec<Ask>, now: Instant) {
        for ask in asks {
            if !claimed.is_empty() {
                // When nobody waits for it any more it is dropped, and so given back.
                let _ = ask.reply.send(Ok(Some(claimed.split(ask.max))));
            } else if ask.until <= now {
                let _ = ask.reply.send(Ok(None));
            } else {
                self.waiting.push(ask);
            }
        }
    }
}
