//! Workflows that a step starts and waits for.

use super::{
    Instance,
    pointer::{ChildEnd, PointerState, Wait},
};
use latchwork_core::store::{Control, Encoded, InstanceId, NewInstance, ParentLink, PointerId, PointerStatus, WorkflowStatus};
use serde_json::Value;
use std::sync::Arc;

/// The workflow that a stored pointer waits for.
pub(crate) fn child_in(state: &Encoded) -> Option<InstanceId> {
    let json = crate::compression::decompress(state).ok()?;
    serde_json::from_str::<PointerState>(json.as_str()).ok()?.child
}

impl Instance {
    /// Starts a workflow with the next checkpoint, and lets a pointer wait for its end.
    pub(super) fn start_child(&mut self, id: PointerId, child: NewInstance) {
        let parent = ParentLink { instance: self.id.clone(), pointer: id };
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        pointer.state.child = Some(child.id.clone());
        pointer.state.child_end = None;
        pointer.wait = Some(Wait::Child);
        self.changes.children.push(child.with_parent(parent));
        self.changes.durable = true;
        self.set_status(id, PointerStatus::WaitingForInstance);
    }

    /// The workflow that a pointer waits for has ended.
    pub(super) fn child_ended(&mut self, child: &InstanceId, id: PointerId, status: WorkflowStatus, result: Value) {
        let Some(pointer) = self.pointers.get_mut(&id).filter(|pointer| pointer.state.child.as_ref() == Some(child)) else {
            tracing::debug!(instance = %self.id, %child, "a child instance ended that no step waits for any more");
            return;
        };
        pointer.wait = None;
        pointer.state.child = None;
        pointer.state.child_end = Some(Arc::new(ChildEnd { status, result }));
        self.again_after_checkpoint(id);
        self.make_ready(id);
    }

    /// The pointer ended first: the workflow that it waited for is terminated.
    pub(super) fn forsake_child(&mut self, id: PointerId) {
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        if let Some(child) = pointer.state.child.take() {
            let reason =
                Some(format!("step `{}` of instance {}, which waited for it, ended first", pointer.record.step, self.id));
            self.changes.messages.push((child, Control::Terminate { reason }));
            self.changes.durable = true;
        }
    }

    /// What the instance that waits for this one is told when it has ended.
    pub(super) fn tell_parent(&self) -> Option<(InstanceId, Control)> {
        let parent = self.parent.as_ref().filter(|_| self.status.is_terminal())?;
        let result = match self.status {
            WorkflowStatus::Complete => {
                let data = (self.definition.data.encode)(&*self.data).ok()?;
                serde_json::from_str(data.as_str()).unwrap_or_default()
            }
            _ => self.reason.clone().map_or(Value::Null, Value::String),
        };
        let control = Control::ChildEnded { child: self.id.clone(), pointer: parent.pointer, status: self.status, result };
        Some((parent.instance.clone(), control))
    }
}
