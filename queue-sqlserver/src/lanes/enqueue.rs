use crate::table::Table;
use latchwork_core::{
    limits,
    queue::{QueueKind, WorkItem},
};
use latchwork_sqlserver_client::SqlServerError;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};

/// Hints to add, at most as many as a statement may write.
#[derive(Debug)]
pub(crate) struct Enqueue {
    pub(crate) queue: QueueKind,
    pub(crate) items: Vec<WorkItem>,
    pub(crate) reply: oneshot::Sender<Result<(), SqlServerError>>,
}

/// Adds hints, as many as there are at one moment and one statement may write together. Ends with the queue.
pub(crate) async fn enqueue(table: Table, mut asked: mpsc::UnboundedReceiver<Enqueue>, bell: Arc<Notify>) {
    let mut left = None;
    loop {
        let first = match left.take() {
            Some(left) => left,
            None => match asked.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        let mut rows = first.items.len();
        let mut group = vec![first];
        while let Ok(next) = asked.try_recv() {
            rows += next.items.len();
            if rows > limits::STATEMENT_ROWS {
                left = Some(next);
                break;
            }
            group.push(next);
        }
        let hints = group.iter().flat_map(|part| part.items.iter().map(|item| (part.queue, item)));
        let rows = table.rows(hints);
        let result = table.enqueue(rows).await;
        if result.is_ok() {
            bell.notify_waiters();
        }
        for part in group {
            // The caller may have stopped waiting.
            let _ = part.reply.send(result.clone());
        }
    }
}
