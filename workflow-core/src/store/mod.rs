//! Stores: where instances, events and definitions are kept.
//!
//! The unit of writing is a [`Checkpoint`]: everything that one step of an instance's life changes, in one transaction,
//! conditional on the revision that was loaded. Only the holder of an instance's lock writes checkpoints. Everybody else
//! appends to the instance's *inbox* ([`InboxMessage`]) and never touches its header or revision; the owner takes rows out
//! of the inbox in the checkpoint that applied them.

mod checkpoint;
mod definition;
mod error;
mod event;
mod id;
mod inbox;
mod instance;
mod pointer;
mod provider;
mod query;
mod retention;
pub mod stored;

pub use checkpoint::{Checkpoint, CheckpointId, CheckpointOutcome, Committed, Due, HeaderUpdate, InvalidCheckpointId};
pub use definition::{ClusterIdentity, DefineOutcome, DefinitionShape, IdentityOutcome};
pub use error::{StoreError, StoreErrorKind};
pub use event::{Activity, ActivityClaim, ActivityOutcome, ConsumedEvent, NewEvent, PublishOutcome, Subscription};
pub use id::{ActivityToken, EventId, InboxId, InstanceId, PointerId, Revision, SubscriptionId};
pub use inbox::{AppendOutcome, Control, InboxMessage, InboxRow, SubmitOutcome};
pub use instance::{
    AttributeValue, CreateOutcome, Encoded, InstanceHeader, LoadedInstance, NewInstance, ParentLink, WorkflowStatus,
};
pub use pointer::{ErrorRecord, Place, PointerRecord, PointerStatus};
pub use provider::{ExclusiveClaim, PersistenceProvider, SchemaMode, StepTransaction, StoreCapabilities, StoreClock};
pub use query::{
    AttributeFilter, Comparison, Fence, InstanceQuery, InstanceRecord, InstanceSummary, Page, RunnableItem, RunnablePage,
    RunnableQuery, StoreStatistics, Tombstone,
};
pub use retention::{PurgeReport, PurgeRequest};
