use crate::{Session, SqlServerError};
use std::{fmt, pin::Pin};
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn for<'a> FnOnce(&'a mut Session) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> + Send>;

/// A session that a task owns. Its jobs run one after the other, each to its end, also when its caller was dropped: no answer is
/// ever left half read. The session ends with the last clone, after the jobs that were given before; its task
/// ends as soon as the server has closed it.
#[derive(Clone)]
pub struct SessionTask {
    jobs: mpsc::UnboundedSender<Job>,
}

impl fmt::Debug for SessionTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTask").field("ended", &self.jobs.is_closed()).finish()
    }
}

impl SessionTask {
    /// Gives the session to a task of its own. Needs a Tokio runtime.
    #[must_use]
    pub fn spawn(mut session: Session) -> Self {
        let (jobs, mut given) = mpsc::unbounded_channel::<Job>();
        tokio::spawn(async move {
            let mut watches = true;
            loop {
                let job = tokio::select! {
                    biased;
                    job = given.recv() => job,
                    closed = session.stirs(), if watches => {
                        if closed {
                            return;
                        }
                        // Something to read that nobody asked for: the next request reads it, and until then nothing is to be seen.
                        watches = false;
                        continue;
                    }
                };
                let Some(job) = job else { return };
                job(&mut session).await;
                if session.is_broken() {
                    return;
                }
                watches = true;
            }
        });
        Self { jobs }
    }

    /// Runs a job on the session, after those that were given before.
    ///
    /// # Errors
    /// That of the job, and [`SqlServerError::Closed`] when the session has ended before it ran.
    pub async fn run<T, F>(&self, job: F) -> Result<T, SqlServerError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> Pin<Box<dyn Future<Output = Result<T, SqlServerError>> + Send + 'a>>
            + Send
            + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let ended = || SqlServerError::closed("an earlier request has ended it");
        self.jobs
            .send(Box::new(move |session| {
                Box::pin(async move {
                    // Nobody may wait any more; the job is done all the same.
                    let _ = sender.send(job(session).await);
                })
            }))
            .map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Whether the session has ended, so that every further job is refused.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.jobs.is_closed()
    }
}
