//! Calls that need no definition: suspend, resume and terminate reach also an instance that no node can run any more.

use super::{Node, around::Told, work::Hint};
use crate::middleware::WorkflowContext;
use latchwork_core::{
    clock,
    hub::{LifeCycleEvent, LifeCycleKind},
    lock::LockGuard,
    store::{
        Checkpoint, CheckpointId, CheckpointOutcome, Control, Due, ErrorRecord, HeaderUpdate, InboxMessage, LoadedInstance,
        PointerId, PointerStatus, WorkflowStatus,
    },
};
use std::{sync::Arc, time::Duration};

impl Node {
    /// Applies what was asked of an instance whose definition is not here, as far as it concerns the header only. What it does not
    /// touch is left for a node that has the definition.
    pub(super) async fn control_only(&self, loaded: LoadedInstance, guard: &LockGuard) -> Hint {
        let header = &loaded.header;
        let (mut status, mut reason) = (header.status, header.reason.clone());
        let (mut applied, mut happened, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        let has_failed_steps = loaded.pointers.iter().any(|pointer| pointer.status == PointerStatus::Failed);
        for row in &loaded.inbox {
            let InboxMessage::Control(control) = &row.message else { continue };
            match control {
                Control::Suspend { reason: why } if status == WorkflowStatus::Runnable => {
                    (status, reason) = (WorkflowStatus::Suspended, why.clone());
                    happened.push(LifeCycleKind::Suspended { reason: why.clone() });
                }
                Control::Resume if status == WorkflowStatus::Suspended && !has_failed_steps => {
                    (status, reason) = (WorkflowStatus::Runnable, None);
                    happened.push(LifeCycleKind::Resumed);
                }
                Control::Terminate { reason: why } => {
                    (status, reason) = (WorkflowStatus::Terminated, why.clone());
                    happened.push(LifeCycleKind::Terminated { reason: why.clone() });
                }
                Control::Suspend { .. } => {}
                // To try steps again, and to hand over results, the definition is needed; and the order of the calls is kept.
                Control::Resume | Control::RetryStep { .. } | Control::ActivityResult { .. } | Control::ChildEnded { .. } => {
                    break;
                }
            }
            applied.push(row.id);
            if status.is_terminal() {
                break;
            }
        }
        if applied.is_empty() {
            return Hint::Done;
        }
        let due = if status == WorkflowStatus::Runnable { Due::In(Duration::ZERO) } else { Due::Never };
        if status.is_terminal() {
            for middleware in self.middleware.workflows.iter() {
                let context = WorkflowContext {
                    instance: &header.id,
                    definition: &header.definition,
                    version: header.version,
                    business_key: header.business_key.as_deref(),
                    reference: header.reference.as_deref(),
                    created: Some(header.created),
                    status,
                    reason: reason.as_deref(),
                    data: None,
                    services: &self.services,
                };
                match self.call_at_end(&**middleware, &context, &guard.lost_token()).await {
                    Told::Done => {}
                    Told::GaveUp { error, attempts } => {
                        let (instance, time) = (header.id.clone(), clock::whole_micros(loaded.now));
                        let pointer = PointerId::from_u128(0);
                        errors.push(ErrorRecord {
                            instance,
                            pointer,
                            step: "at_end".into(),
                            attempt: attempts,
                            time,
                            message: error,
                        });
                    }
                    Told::Lost | Told::Stopped => return Hint::Again(Duration::ZERO),
                }
            }
        }
        let update = HeaderUpdate { status, reason: reason.clone(), due, fault_count: header.fault_count };
        let id = CheckpointId { burst: uuid::Uuid::now_v7().as_u128(), number: 1 };
        let mut checkpoint = Checkpoint::new(header.id.clone(), id, header.revision, update);
        checkpoint.applied = applied;
        checkpoint.errors = errors;
        if status.is_terminal() {
            // Workflows that its steps wait for end with it.
            let waiting = loaded.pointers.iter().filter(|pointer| pointer.status == PointerStatus::WaitingForInstance);
            let children = waiting.filter_map(|pointer| crate::instance::child_in(pointer.state.as_ref()?));
            let reason = Some(format!("instance {}, which waited for it, ended first", header.id));
            checkpoint.messages.extend(children.map(|child| (child, Control::Terminate { reason: reason.clone() })));
            checkpoint.pointers = loaded.pointers.clone();
            for pointer in &mut checkpoint.pointers {
                pointer.status = PointerStatus::Cancelled;
                pointer.ended = Some(clock::whole_micros(loaded.now));
                (pointer.due, pointer.state) = (None, None);
            }
        }
        if status.is_terminal()
            && let Some(parent) = &header.parent
        {
            let result = reason.map_or(serde_json::Value::Null, serde_json::Value::String);
            let ended = Control::ChildEnded { child: header.id.clone(), pointer: parent.pointer, status, result };
            checkpoint.messages.push((parent.instance.clone(), ended));
        }
        match self.committer.commit(Arc::new(checkpoint), &guard.lost_token()).await {
            Some(CheckpointOutcome::Committed(committed)) => {
                self.enqueue(&committed.wake).await;
                let event = |kind| {
                    LifeCycleEvent::new(header.id.clone(), header.definition.clone(), header.version, committed.now, kind)
                        .with_reference(header.reference.clone())
                };
                self.tell(happened.into_iter().map(event).collect()).await;
                if status.is_terminal() {
                    self.completions.ended(&header.id);
                }
                Hint::Done
            }
            Some(CheckpointOutcome::Refused { .. }) | None => Hint::Again(Duration::ZERO),
            Some(CheckpointOutcome::Failed(error)) => {
                tracing::warn!(instance = %header.id, %error, "what was asked of an instance was not written; it is tried again");
                self.health.store.fails(&error);
                Hint::Again(self.settings.error_retry_interval)
            }
        }
    }
}
