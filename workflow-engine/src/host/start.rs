use super::{HostError, WorkflowHandle, WorkflowHost};
use crate::{builder::Workflow, data::AnyData, instance::panicked, middleware::WorkflowContext};
use futures_util::FutureExt;
use latchwork_core::{
    limits, name,
    queue::WorkItem,
    store::{AttributeValue, CreateOutcome, InstanceId, NewInstance, WorkflowStatus},
};
use std::{
    fmt,
    future::{Future, IntoFuture},
    panic::AssertUnwindSafe,
    pin::Pin,
};

/// A request to start an instance; await it.
#[must_use = "nothing starts until the request is awaited"]
pub struct Start<'h, W: Workflow> {
    pub(super) host: &'h WorkflowHost,
    data: W::Data,
    id: Option<InstanceId>,
    business_key: Option<String>,
    reference: Option<String>,
    attributes: Vec<(String, AttributeValue)>,
}

impl<W: Workflow> fmt::Debug for Start<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("workflow", &W::ID).field("business_key", &self.business_key).finish_non_exhaustive()
    }
}

impl<'h, W: Workflow> Start<'h, W> {
    pub(super) fn new(host: &'h WorkflowHost, data: W::Data) -> Self {
        Self { host, data, id: None, business_key: None, reference: None, attributes: Vec::new() }
    }

    /// At most one instance of the workflow has this key, over all versions and states. A second start with it returns the first
    /// instance; [`WorkflowHandle::was_created`] tells which it was.
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// A text to search by; need not be unique.
    pub fn reference(mut self, reference: impl Into<String>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// The id, drawn by the caller, so that a repeated start is a no-op. Default: drawn here.
    pub fn id(mut self, id: InstanceId) -> Self {
        self.id = Some(id);
        self
    }

    /// An attribute that queries can filter on. At most 32.
    pub fn attribute(mut self, name: impl Into<String>, value: AttributeValue) -> Self {
        self.attributes.push((name.into(), value));
        self
    }

    /// The instance to be created, checked.
    pub(super) async fn instance(self) -> Result<NewInstance, HostError> {
        let node = &self.host.node;
        let definition = &self.host.registered(W::ID, Some(W::VERSION))?.definition;
        let data =
            (definition.data.encode)(&self.data as &AnyData).map_err(|error| HostError::data("data of the instance", error))?;
        let (bytes, limit) = (data.as_str().len(), node.settings.data_limit);
        if bytes > limit {
            return Err(HostError::TooLarge { what: "data of the instance".into(), bytes, limit });
        }
        if !limits::json_depth_is_allowed(data.as_str()) {
            return Err(HostError::data("data of the instance", format!("it nests deeper than {} levels", limits::JSON_DEPTH)));
        }
        if let Some(key) = &self.business_key {
            name::check("business key", key)?;
        }
        if let Some(reference) = &self.reference {
            name::check("reference", reference)?;
        }
        if self.attributes.len() > limits::ATTRIBUTES {
            let (bytes, limit) = (self.attributes.len(), limits::ATTRIBUTES);
            return Err(HostError::data("attributes", format!("there are {bytes}, at most {limit} are allowed")));
        }
        for (attribute, value) in &self.attributes {
            name::check("attribute name", attribute)?;
            check_attribute(attribute, value)?;
        }
        let data = node.rules.compression.pack(data);
        let mut instance = NewInstance::new(definition.id.clone(), definition.version, definition.fingerprint.clone(), data);
        instance.id = self.id.unwrap_or(instance.id);
        instance.business_key = self.business_key;
        instance.reference = self.reference;
        instance.attributes = self.attributes;
        if !node.middleware.workflows.is_empty() {
            let context = WorkflowContext {
                instance: &instance.id,
                definition: W::ID,
                version: W::VERSION,
                business_key: instance.business_key.as_deref(),
                reference: instance.reference.as_deref(),
                created: None,
                status: WorkflowStatus::Runnable,
                reason: None,
                data: Some(&self.data),
                services: &node.services,
            };
            for middleware in node.middleware.workflows.iter() {
                let called = AssertUnwindSafe(middleware.before_start(&context)).catch_unwind().await;
                called.unwrap_or_else(|panic| Err(panicked(&*panic))).map_err(|error| HostError::refused(W::ID, &error))?;
            }
        }
        Ok(instance)
    }

    /// Creates the instance; with its hint, unless it was there.
    pub(super) async fn create(self) -> Result<(WorkflowHandle<W>, Option<WorkItem>), HostError> {
        let host = self.host;
        let instance = self.instance().await?;
        let item = instance.work_item();
        let created = host.node.store.create(std::slice::from_ref(&instance)).await?;
        match created.into_iter().next() {
            Some(CreateOutcome::Exists { instance, .. }) => Ok((WorkflowHandle::new(host.instance(instance)).existing(), None)),
            _ => {
                metrics::counter!("latchwork.workflows.started").increment(1);
                Ok((WorkflowHandle::new(host.instance(item.instance.clone())), Some(item)))
            }
        }
    }

    async fn start(self) -> Result<WorkflowHandle<W>, HostError> {
        let host = self.host;
        let (handle, item) = self.create().await?;
        host.node.enqueue(item.as_slice()).await;
        Ok(handle)
    }
}

/// Every store must be able to keep and index a value.
fn check_attribute(name: &str, value: &AttributeValue) -> Result<(), HostError> {
    let what = || format!("attribute `{name}`");
    match value {
        AttributeValue::Text(text) if text.len() > limits::ATTRIBUTE_TEXT_BYTES => {
            Err(HostError::TooLarge { what: what(), bytes: text.len(), limit: limits::ATTRIBUTE_TEXT_BYTES })
        }
        AttributeValue::Text(text) if text.contains('\0') => Err(HostError::data(what(), "text must not contain NUL")),
        AttributeValue::Number(number) if !number.is_finite() => {
            Err(HostError::data(what(), format!("{number} is no number to compare with")))
        }
        _ => Ok(()),
    }
}

impl<'h, W: Workflow> IntoFuture for Start<'h, W> {
    type Output = Result<WorkflowHandle<W>, HostError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'h>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}
