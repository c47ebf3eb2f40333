//! Waiting for a future on a plain thread.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Instant,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks this thread until `future` is ready, or until `deadline`, which then gives `None`.
pub(crate) fn wait<F: Future + Unpin>(future: &mut F, deadline: Option<Instant>) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut context) {
            return Some(output);
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => std::thread::park(),
            Some(left) if left.is_zero() => return None,
            Some(left) => std::thread::park_timeout(left),
        }
    }
}
