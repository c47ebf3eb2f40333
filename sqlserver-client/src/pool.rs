use crate::{Session, SqlServerError, SqlServerOptions, SqlServerTransaction};
use backon::{ExponentialBuilder, Retryable};
use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult};
use std::{fmt, pin::Pin, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// First and longest pause between the tries of one request, and their number after the first.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const TRIES: usize = 7;

/// A few sessions for any number of callers. Nothing connects before it is used; sessions stay open and are looked at before they
/// are used again, and one that broke is replaced.
///
/// Never for locks: a session that may hold one belongs to its holder.
#[derive(Clone)]
pub struct SqlServerPool {
    sessions: managed::Pool<Opener>,
    options: Arc<SqlServerOptions>,
    jobs: TaskTracker,
}

impl fmt::Debug for SqlServerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerPool").field("options", &self.options).field("sessions", &self.sessions.status()).finish()
    }
}

/// What opens the sessions of a pool.
pub(crate) struct Opener(Arc<SqlServerOptions>);

impl managed::Manager for Opener {
    type Type = Session;
    type Error = SqlServerError;

    async fn create(&self) -> Result<Session, SqlServerError> {
        Session::open(&self.0).await
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<SqlServerError> {
        if session.is_broken() || session.is_closed_by_now() {
            return Err(RecycleError::message("the session has ended"));
        }
        Ok(())
    }
}

impl SqlServerPool {
    /// A pool of at most so many sessions, one at least.
    ///
    /// # Errors
    /// [`SqlServerError::ConnectionString`] when the connection string cannot be read.
    pub fn new(options: SqlServerOptions, sessions: usize) -> Result<Self, SqlServerError> {
        Session::config(&options)?;
        let options = Arc::new(options);
        let sessions = managed::Pool::builder(Opener(options.clone())).max_size(sessions.max(1)).build();
        let sessions = sessions.map_err(|error| SqlServerError::protocol(error.to_string()))?;
        Ok(Self { sessions, options, jobs: TaskTracker::new() })
    }

    /// How its sessions are opened.
    pub fn options(&self) -> &SqlServerOptions {
        &self.options
    }

    /// Runs a job on a session, once, and to its end, also when its caller is dropped. A job that leaves a transaction open must
    /// return an error of those that [break the session](SqlServerError::spares_the_session).
    ///
    /// # Errors
    /// That of the job; [`SqlServerError::Unreachable`] and its kin when there is no session;
    /// [`SqlServerError::TimedOut`] when none was free within the limit of a request.
    pub async fn run<T, F>(&self, job: F) -> Result<T, SqlServerError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> Pin<Box<dyn Future<Output = Result<T, SqlServerError>> + Send + 'a>>
            + Send
            + 'static,
    {
        let mut session = self.session().await?;
        let done = self.jobs.spawn(async move { job(&mut session).await }).await;
        done.unwrap_or_else(|error| Err(SqlServerError::closed(format!("a request did not end as it should: {error}"))))
    }

    /// As [`run`](Self::run), and again after errors that are [worth another try](SqlServerError::is_transient), with pauses that
    /// double from 20 ms to 2 s, for some 5 s. Such an error does not say whether the job was done, so it must be one that may be done twice.
    ///
    /// # Errors
    /// Those of the last try.
    pub async fn retry<T, F>(&self, job: F) -> Result<T, SqlServerError>
    where
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Session) -> Pin<Box<dyn Future<Output = Result<T, SqlServerError>> + Send + 'a>>
            + Clone
            + Send
            + 'static,
    {
        let pauses = ExponentialBuilder::new().with_min_delay(PAUSE).with_max_delay(LONGEST_PAUSE).with_max_times(TRIES);
        (|| self.run(job.clone()))
            .retry(pauses.with_jitter())
            .when(SqlServerError::is_transient)
            .notify(|error, pause| {
                tracing::debug!(%error, ?pause, server = %self.options.server(), "a request is tried again after a pause");
            })
            .await
    }

    /// Begins a transaction, which has a session for itself.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn begin(&self) -> Result<SqlServerTransaction, SqlServerError> {
        SqlServerTransaction::begin(self.session().await?, self.options.request_timeout).await
    }

    /// Refuses what is asked from now on, waits for the jobs under way, and closes the sessions. Those of open transactions end
    /// with them.
    ///
    /// # Errors
    /// [`SqlServerError::TimedOut`] when jobs are still under way after `grace`; their sessions end with them.
    pub async fn close(&self, grace: Duration) -> Result<(), SqlServerError> {
        self.sessions.close();
        self.jobs.close();
        timeout(grace, self.jobs.wait()).await.map_err(|_| SqlServerError::TimedOut { limit: grace })
    }

    async fn session(&self) -> Result<Object<Opener>, SqlServerError> {
        let limit = self.options.request_timeout;
        match timeout(limit, self.sessions.get()).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(PoolError::Backend(error))) => Err(error),
            Ok(Err(PoolError::Closed)) => Err(SqlServerError::Stopped),
            Ok(Err(error)) => Err(SqlServerError::protocol(error.to_string())),
            Err(_) => Err(SqlServerError::TimedOut { limit }),
        }
    }
}
