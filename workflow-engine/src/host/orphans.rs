use crate::definition::Definition;
use latchwork_core::{
    limits,
    store::{InstanceId, InstanceQuery, PersistenceProvider, StoreError, WorkflowStatus},
};
use std::sync::Arc;

/// An open instance that stands at steps which a definition does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Orphan {
    /// The instance.
    pub instance: InstanceId,
    /// The steps that are gone, each once, in the order in which they were begun.
    pub steps: Vec<Arc<str>>,
}

/// Which open instances of the definition's id and version could not go on with this definition, because they stand at steps that it does not
/// have. To be asked before a changed definition is deployed under its old version, of a definition made by
/// [`define`](crate::builder::define).
///
/// Reads page by page, an instance at a time; what is started meanwhile may be missed.
///
/// # Errors
/// [`StoreError`] of the infrastructure.
///
/// ```
/// # use latchwork_engine::*;
/// # async fn check<Order: Workflow>(host: &WorkflowHost, changed: Order) -> Result<(), Box<dyn std::error::Error>> {
/// for orphan in orphans(&**host.store(), &builder::define(&changed)?).await? {
///     println!("{} stands at {:?}", orphan.instance, orphan.steps);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn orphans(store: &dyn PersistenceProvider, definition: &Definition) -> Result<Vec<Orphan>, StoreError> {
    let mut orphans = Vec::new();
    let mut query = InstanceQuery::new()
        .with_status([WorkflowStatus::Runnable, WorkflowStatus::Suspended])
        .with_definition(definition.id())
        .with_limit(limits::GROUP_CHECKPOINTS);
    query.version = Some(definition.version());
    loop {
        let page = store.find(&query).await?;
        for found in &page.items {
            let Some(loaded) = store.load(&found.header.id).await? else { continue };
            let mut steps: Vec<Arc<str>> = Vec::new();
            for pointer in loaded.pointers {
                if !definition.has_step(&pointer.step) && !steps.contains(&pointer.step) {
                    steps.push(pointer.step);
                }
            }
            if !steps.is_empty() {
                orphans.push(Orphan { instance: found.header.id.clone(), steps });
            }
        }
        match page.items.last() {
            Some(last) if page.more => query.after = Some(last.header.id.clone()),
            _ => return Ok(orphans),
        }
    }
}
