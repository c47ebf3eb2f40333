use super::{HostError, WorkflowHost};
use crate::{builder::Workflow, compression::decompress};
use latchwork_core::{
    clock::ClockExt,
    limits,
    store::{AppendOutcome, Control, Encoded, ErrorRecord, InstanceId, InstanceRecord, Page, PointerRecord, WorkflowStatus},
};
use std::{
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    ops::Deref,
    pin::Pin,
    time::Duration,
};

/// The first and the longest pause between two looks at an instance that another node may end.
const LOOKS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// An instance, seen from a host; it may run on any node. Calls return when they are stored, and take effect at once, also while a
/// step runs.
#[derive(Clone)]
pub struct InstanceHandle {
    host: WorkflowHost,
    id: InstanceId,
}

impl fmt::Debug for InstanceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

impl InstanceHandle {
    pub(super) fn new(host: WorkflowHost, id: InstanceId) -> Self {
        Self { host, id }
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// What the store knows of it, with its data as JSON, however it is stored.
    ///
    /// # Errors
    /// [`HostError::NotFound`], [`HostError::Data`] when its compressed data is damaged, or [`HostError`] of the store.
    pub async fn get(&self) -> Result<InstanceRecord, HostError> {
        self.readable(self.stored().await?)
    }

    /// What the store knows of it, as it is stored.
    async fn stored(&self) -> Result<InstanceRecord, HostError> {
        self.host.node.store.get(&self.id).await?.ok_or_else(|| HostError::not_found(&self.id))
    }

    /// Where it stands.
    ///
    /// # Errors
    /// [`HostError::NotFound`], or [`HostError`] of the store.
    pub async fn status(&self) -> Result<WorkflowStatus, HostError> {
        Ok(self.stored().await?.status())
    }

    fn readable(&self, mut record: InstanceRecord) -> Result<InstanceRecord, HostError> {
        let data = match &mut record {
            InstanceRecord::Instance { data, .. } => Some(data),
            InstanceRecord::Deleted(tombstone) => tombstone.result.as_mut(),
        };
        if let Some(data) = data {
            *data = decompress(data).map_err(|error| HostError::data(format!("data of instance {}", self.id), error))?;
        }
        Ok(record)
    }

    /// Starts no further step until resumed; running ones finish. A long reason is cut to
    /// [`ERROR_TEXT_BYTES`](latchwork_core::limits::ERROR_TEXT_BYTES).
    ///
    /// # Errors
    /// [`HostError::AlreadyEnded`], [`HostError::NotFound`], or [`HostError`] of the store.
    #[doc(alias = "SuspendWorkflow")]
    pub async fn suspend(&self, reason: impl Into<String>) -> Result<(), HostError> {
        self.append(Control::Suspend { reason: Some(short(reason)) }).await
    }

    /// Goes on, and tries failed steps again.
    ///
    /// # Errors
    /// [`HostError::AlreadyEnded`], [`HostError::NotFound`], or [`HostError`] of the store.
    #[doc(alias = "ResumeWorkflow")]
    pub async fn resume(&self) -> Result<(), HostError> {
        self.append(Control::Resume).await
    }

    /// Ends it: the tokens of running steps fire, and after the stop grace their futures are dropped. A long reason is cut to
    /// [`ERROR_TEXT_BYTES`](latchwork_core::limits::ERROR_TEXT_BYTES).
    ///
    /// # Errors
    /// [`HostError::AlreadyEnded`], [`HostError::NotFound`], or [`HostError`] of the store.
    #[doc(alias = "TerminateWorkflow")]
    pub async fn terminate(&self, reason: impl Into<String>) -> Result<(), HostError> {
        self.append(Control::Terminate { reason: Some(short(reason)) }).await
    }

    /// Tries the steps again that have failed for good, with all their tries, and goes on. Done by a node that has the instance's workflow;
    /// [`suspend`](Self::suspend), [`terminate`](Self::terminate), and a [`resume`](Self::resume) without failed steps need none.
    ///
    /// # Errors
    /// [`HostError::AlreadyEnded`], [`HostError::NotFound`], or [`HostError`] of the store.
    pub async fn retry_step(&self) -> Result<(), HostError> {
        self.append(Control::RetryStep { pointer: None }).await
    }

    /// The errors of its steps, oldest first; the newest 100 are kept.
    ///
    /// # Errors
    /// [`HostError`] of the store.
    pub async fn errors(&self) -> Result<Vec<ErrorRecord>, HostError> {
        Ok(self.host.node.store.errors(&self.id).await?)
    }

    /// A page of its pointers in order of their sequence, after this one; 0 begins.
    ///
    /// # Errors
    /// [`HostError::Data`] when the compressed state of one is damaged, or [`HostError`] of the store.
    pub async fn history(&self, after: i64, limit: usize) -> Result<Page<PointerRecord>, HostError> {
        let mut page = self.host.node.store.history(&self.id, after, limit).await?;
        for pointer in &mut page.items {
            if let Some(state) = &mut pointer.state {
                let what = || format!("state of step `{}` of instance {}", pointer.step, self.id);
                *state = decompress(state).map_err(|error| HostError::data(what(), error))?;
            }
        }
        Ok(page)
    }

    /// Resolves with the record when the instance has ended; never when it does not end.
    ///
    /// # Errors
    /// [`HostError::NotFound`], [`HostError::Data`] when its compressed data is damaged, or [`HostError`] of the store that a retry cannot
    /// mend.
    pub async fn ended(&self) -> Result<InstanceRecord, HostError> {
        self.readable(self.stored_at_end().await?)
    }

    async fn stored_at_end(&self) -> Result<InstanceRecord, HostError> {
        let node = &self.host.node;
        let watch = node.completions.watch(&self.id);
        let result = async {
            let mut pause = LOOKS.0;
            loop {
                // Registered before the look, so that an end in between is not missed.
                let mut ended = std::pin::pin!(watch.notified());
                ended.as_mut().enable();
                match self.stored().await {
                    Ok(record) if record.status().is_terminal() => return Ok(record),
                    Ok(_) => {}
                    Err(error) if error.is_retryable() => {
                        tracing::debug!(instance = %self.id, %error, "a look at an instance failed");
                    }
                    Err(error) => return Err(error),
                }
                // Ended on this node: told at once. On another: seen at the next look.
                tokio::select! {
                    () = ended => pause = LOOKS.0,
                    () = node.clock.sleep(pause) => pause = (pause * 2).min(LOOKS.1),
                }
            }
        }
        .await;
        node.completions.unwatch(&self.id, watch);
        result
    }

    async fn append(&self, control: Control) -> Result<(), HostError> {
        let node = &self.host.node;
        let outcomes = node.store.append(&[(self.id.clone(), control)]).await?;
        match outcomes.into_iter().next() {
            Some(AppendOutcome::Appended(item)) => {
                node.enqueue(std::slice::from_ref(&item)).await;
                Ok(())
            }
            Some(AppendOutcome::Ended(status)) => Err(HostError::AlreadyEnded { instance: self.id.clone(), status }),
            Some(AppendOutcome::Unknown) | None => Err(HostError::not_found(&self.id)),
        }
    }
}

/// An instance of a known workflow: an [`InstanceHandle`] with typed data.
pub struct WorkflowHandle<W> {
    instance: InstanceHandle,
    created: bool,
    workflow: PhantomData<fn() -> W>,
}

impl<W> Clone for WorkflowHandle<W> {
    fn clone(&self) -> Self {
        Self { instance: self.instance.clone(), created: self.created, workflow: PhantomData }
    }
}

impl<W> fmt::Debug for WorkflowHandle<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowHandle").field("id", self.instance.id()).field("created", &self.created).finish_non_exhaustive()
    }
}

impl<W> Deref for WorkflowHandle<W> {
    type Target = InstanceHandle;

    fn deref(&self) -> &InstanceHandle {
        &self.instance
    }
}

impl<W: Workflow> WorkflowHandle<W> {
    pub(super) fn new(instance: InstanceHandle) -> Self {
        Self { instance, created: true, workflow: PhantomData }
    }

    pub(super) fn existing(mut self) -> Self {
        self.created = false;
        self
    }

    /// Whether the start created it; `false` when an instance with the same business key was there.
    #[must_use]
    pub fn was_created(&self) -> bool {
        self.created
    }

    /// The data as of its last checkpoint.
    ///
    /// # Errors
    /// [`HostError::NotFound`], [`HostError::Deleted`], [`HostError::Data`] when it cannot be read, or [`HostError`] of the store.
    pub async fn data(&self) -> Result<W::Data, HostError> {
        typed::<W>(&self.instance.id, self.instance.get().await?)
    }

    /// Waits for its end, and resolves with its data. When the host deletes ended instances, the data comes from the tombstone, which has
    /// that of up to 8 KiB; an instance with more that was deleted before the look is [`HostError::Deleted`]. A tombstone does not tell why
    /// an instance was terminated.
    pub fn completion(&self) -> Completion<W> {
        Completion { handle: self.clone(), timeout: None }
    }
}

/// A wait for an instance's end; await it.
#[must_use = "nothing is waited for until this is awaited"]
#[derive(Debug)]
pub struct Completion<W> {
    handle: WorkflowHandle<W>,
    timeout: Option<Duration>,
}

impl<W: Workflow> Completion<W> {
    /// Waits no longer than this; [`HostError::TimedOut`] then, and the instance goes on.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    async fn wait(self) -> Result<W::Data, HostError> {
        let (instance, clock) = (&self.handle.instance, &self.handle.instance.host.node.clock);
        let ended = match self.timeout {
            None => instance.stored_at_end().await?,
            Some(timeout) => tokio::select! {
                biased;
                ended = instance.stored_at_end() => ended?,
                () = clock.sleep(timeout) => {
                    let record = instance.stored().await?;
                    if !record.status().is_terminal() {
                        let (status, reason) = (record.status(), reason_of(&record));
                        return Err(HostError::TimedOut { instance: instance.id.clone(), status, reason });
                    }
                    record
                }
            },
        };
        if ended.status() == WorkflowStatus::Terminated {
            return Err(HostError::Terminated { instance: instance.id.clone(), reason: reason_of(&ended) });
        }
        typed::<W>(&instance.id, instance.readable(ended)?)
    }
}

impl<W: Workflow> IntoFuture for Completion<W> {
    type Output = Result<W::Data, HostError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}

fn short(reason: impl Into<String>) -> String {
    let reason = reason.into();
    limits::cut(&reason, limits::ERROR_TEXT_BYTES).to_owned()
}

fn reason_of(record: &InstanceRecord) -> Option<String> {
    match record {
        InstanceRecord::Instance { header, .. } => header.reason.clone(),
        InstanceRecord::Deleted(_) => None,
    }
}

fn typed<W: Workflow>(id: &InstanceId, record: InstanceRecord) -> Result<W::Data, HostError> {
    let data: Encoded = match record {
        InstanceRecord::Instance { data, .. } => data,
        InstanceRecord::Deleted(tombstone) => match tombstone.result {
            Some(result) => result,
            None => return Err(HostError::Deleted { instance: id.clone(), status: tombstone.status, ended: tombstone.ended }),
        },
    };
    serde_json::from_str(data.as_str()).map_err(|error| HostError::data(format!("data of instance {id}"), error))
}
