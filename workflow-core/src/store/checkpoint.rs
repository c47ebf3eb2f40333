use super::{
    Activity, AttributeValue, ConsumedEvent, Control, Encoded, ErrorRecord, InboxId, InboxRow, InstanceId, NewEvent, NewInstance,
    PointerRecord, Revision, StoreError, Subscription, SubscriptionId, WorkflowStatus,
};
use crate::{clock::Timestamp, queue::WorkItem};
use std::{fmt, str::FromStr, time::Duration};

/// The id of a checkpoint: its burst, and its number in it. Stored in the header as the writer, so that after an unknown
/// outcome the store can tell whether it was this one that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointId {
    /// A random number of the burst.
    pub burst: u128,
    /// The number of the checkpoint within the burst, from 1.
    pub number: u64,
}

impl fmt::Display for CheckpointId {
    /// `{burst as 32 hexadecimal digits}.{number}`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{}", self.burst, self.number)
    }
}

/// The text is not a checkpoint's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a checkpoint id")]
#[non_exhaustive]
pub struct InvalidCheckpointId;

impl FromStr for CheckpointId {
    type Err = InvalidCheckpointId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (burst, number) = text.split_once('.').ok_or(InvalidCheckpointId)?;
        Ok(Self {
            burst: u128::from_str_radix(burst, 16).map_err(|_| InvalidCheckpointId)?,
            number: number.parse().map_err(|_| InvalidCheckpointId)?,
        })
    }
}

/// When an instance next has something to do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// As it is stored.
    Keep,
    /// So long after the commit, by the store's clock; zero is at once.
    In(Duration),
    /// Then, by the store's clock.
    At(Timestamp),
    /// Not by itself.
    Never,
}

/// What a checkpoint writes of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderUpdate {
    /// Where the instance stands. When terminal, the store sets the end time, and removes subscriptions, activities and inbox.
    pub status: WorkflowStatus,
    /// Why, where the status was not reached in the ordinary way.
    pub reason: Option<String>,
    /// When it next has something to do by itself.
    pub due: Due,
    /// Bursts in a row that failed for reasons of the instance's own.
    pub fault_count: u32,
}

/// Everything that one step of an instance's life changes. Written in one transaction, or not at all, when the stored
/// revision is still [`expected`](Self::expected).
///
/// A consistent cut: the pointers and the data that belongs to them. Never inserts a header.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The instance.
    pub instance: InstanceId,
    /// The checkpoint's own id, the same in each try.
    pub id: CheckpointId,
    /// The revision that was loaded or last committed.
    pub expected: Revision,
    /// The header.
    pub header: HeaderUpdate,
    /// The data, when it changed.
    pub data: Option<Encoded>,
    /// The pointers that changed or are new, each whole.
    pub pointers: Vec<PointerRecord>,
    /// New waits for events.
    pub subscriptions: Vec<Subscription>,
    /// Waits that are over, with what was matched to them and not consumed.
    pub ended_subscriptions: Vec<SubscriptionId>,
    /// New activities.
    pub activities: Vec<Activity>,
    /// Activities that are over.
    pub ended_activities: Vec<SubscriptionId>,
    /// Inbox rows that were applied.
    pub applied: Vec<InboxId>,
    /// Events that satisfied a slot.
    pub consumed: Vec<ConsumedEvent>,
    /// Errors to be kept.
    pub errors: Vec<ErrorRecord>,
    /// Attributes to be set.
    pub attributes: Vec<(String, AttributeValue)>,
    /// Events to be published.
    pub events: Vec<NewEvent>,
    /// Instances to be created.
    pub children: Vec<NewInstance>,
    /// Messages for other instances. Those for ended or unknown ones are dropped.
    pub messages: Vec<(InstanceId, Control)>,
}

impl Checkpoint {
    /// A checkpoint that changes nothing but the header.
    pub fn new(instance: InstanceId, id: CheckpointId, expected: Revision, header: HeaderUpdate) -> Self {
        Self {
            instance,
            id,
            expected,
            header,
            data: None,
            pointers: Vec::new(),
            subscriptions: Vec::new(),
            ended_subscriptions: Vec::new(),
            activities: Vec::new(),
            ended_activities: Vec::new(),
            applied: Vec::new(),
            consumed: Vec::new(),
            errors: Vec::new(),
            attributes: Vec::new(),
            events: Vec::new(),
            children: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Roughly how many bytes it will write; groups are bounded by the sum.
    #[must_use]
    pub fn weight(&self) -> usize {
        let encoded = |encoded: &Option<Encoded>| encoded.as_ref().map_or(0, |encoded| encoded.as_str().len());
        256 + encoded(&self.data)
            + self.pointers.iter().map(|pointer| 256 + encoded(&pointer.state)).sum::<usize>()
            + self.errors.iter().map(|error| 128 + error.message.len()).sum::<usize>()
            + self.events.iter().map(|event| 256 + encoded(&event.data)).sum::<usize>()
            + self.children.iter().map(|child| 512 + child.data.as_str().len()).sum::<usize>()
            + 256 * (self.subscriptions.len() + self.activities.len() + self.messages.len() + self.attributes.len())
    }
}

/// What became of a checkpoint.
#[derive(Debug)]
#[must_use]
pub enum CheckpointOutcome {
    /// Written.
    Committed(Committed),
    /// Not written: the stored revision is another, the instance has ended, or it is gone. The writer walks away (I1).
    Refused {
        /// The stored revision; `None` when the instance is gone.
        stored: Option<Revision>,
    },
    /// Not written, for this reason. When it is retryable, the same checkpoint can be tried again with the same id.
    Failed(StoreError),
}

/// The answer to a checkpoint that was written.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The new revision.
    pub revision: Revision,
    /// The store's time at the commit.
    pub now: Timestamp,
    /// What stands in the inbox now and is visible, in the order of [`LoadedInstance::inbox`](super::LoadedInstance::inbox).
    pub inbox: Vec<InboxRow>,
    /// The other instances that it gave something to do.
    pub wake: Vec<WorkItem>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_id_reads_back() {
        let id = CheckpointId { burst: 7 << 100, number: 12 };
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("7".parse::<CheckpointId>(), Err(InvalidCheckpointId));
    }
}
