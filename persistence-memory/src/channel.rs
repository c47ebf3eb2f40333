//! Events, and who waits for them.

use crate::small_map::SmallMap;
use latchwork_core::{
    clock::{Timestamp, whole_micros},
    store::{Encoded, EventId, InstanceId, NewEvent, Subscription, SubscriptionId},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The order of the events of one name and key: time, then number.
pub(crate) type EventKey = (Timestamp, u64);

/// A published event. Its shared count tells whether it stands in an inbox: the indexes have three.
#[derive(Debug)]
pub(crate) struct StoredEvent {
    pub(crate) id: EventId,
    pub(crate) channel: u64,
    pub(crate) time: Timestamp,
    pub(crate) number: u64,
    pub(crate) data: Option<Encoded>,
    name: Arc<str>,
    of_key: Arc<str>,
}

impl StoredEvent {
    pub(crate) fn key(&self) -> EventKey {
        (self.time, self.number)
    }
}

/// The events of one name and key, and the waits for them.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) number: u64,
    /// Grows when an event comes that is not the last in order.
    pub(crate) disorder: u64,
    pub(crate) events: BTreeMap<EventKey, Arc<StoredEvent>>,
    pub(crate) waits: SmallMap<(InstanceId, SubscriptionId), ()>,
}

/// All channels. The lock around them is the lock of every channel.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    by_name: HashMap<(Arc<str>, Arc<str>), Channel>,
    events: HashMap<EventId, Arc<StoredEvent>>,
    timeline: BTreeMap<EventKey, Arc<StoredEvent>>,
    /// The last number given to a channel or an event.
    last: u64,
}

impl Channels {
    pub(crate) fn get(&self, name: &Arc<str>, key: &Arc<str>) -> Option<&Channel> {
        self.by_name.get(&(name.clone(), key.clone()))
    }

    fn channel(&mut self, name: &Arc<str>, key: &Arc<str>) -> &mut Channel {
        let last = &mut self.last;
        self.by_name.entry((name.clone(), key.clone())).or_insert_with(|| {
            *last += 1;
            Channel { number: *last, disorder: 0, events: BTreeMap::new(), waits: SmallMap::default() }
        })
    }

    /// Adds an event; `None` when its id is known.
    pub(crate) fn add_event(&mut self, event: NewEvent, now: Timestamp) -> Option<Arc<StoredEvent>> {
        if self.events.contains_key(&event.id) {
            return None;
        }
        self.last += 1;
        let number = self.last;
        let time = event.time.map_or(now, whole_micros);
        let channel = self.channel(&event.name, &event.key);
        let stored = Arc::new(StoredEvent {
            id: event.id,
            channel: channel.number,
            time,
            number,
            data: event.data,
            name: event.name,
            of_key: event.key,
        });
        if channel.events.last_key_value().is_some_and(|(last, _)| *last > stored.key()) {
            channel.disorder += 1;
        }
        channel.events.insert(stored.key(), stored.clone());
        self.timeline.insert(stored.key(), stored.clone());
        self.events.insert(stored.id.clone(), stored.clone());
        Some(stored)
    }

    pub(crate) fn add_wait(&mut self, instance: &InstanceId, subscription: &Subscription) {
        self.channel(&subscription.name, &subscription.key).waits.insert((instance.clone(), subscription.id), ());
    }

    pub(crate) fn remove_wait(&mut self, instance: &InstanceId, subscription: &Subscription) {
        let place = (subscription.name.clone(), subscription.key.clone());
        if let Some(channel) = self.by_name.get_mut(&place) {
            channel.waits.remove(&(instance.clone(), subscription.id));
            self.drop_if_empty(&place);
        }
    }

    fn drop_if_empty(&mut self, place: &(Arc<str>, Arc<str>)) {
        if self.by_name.get(place).is_some_and(|channel| channel.waits.is_empty() && channel.events.is_empty()) {
            self.by_name.remove(place);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.events.len()
    }

    /// Removes up to `limit` events from before this time that stand in no inbox; also tells whether there are more.
    pub(crate) fn purge(&mut self, before: Timestamp, limit: usize) -> (u64, bool) {
        let old = self.timeline.range(..(before, 0)).filter(|(_, event)| Arc::strong_count(event) <= 3);
        let mut old: Vec<_> = old.take(limit.saturating_add(1)).map(|(_, event)| event.clone()).collect();
        let more = old.len() > limit;
        old.truncate(limit);
        for event in &old {
            self.timeline.remove(&event.key());
            self.events.remove(&event.id);
            let place = (event.name.clone(), event.of_key.clone());
            if let Some(channel) = self.by_name.get_mut(&place) {
                channel.events.remove(&event.key());
                self.drop_if_empty(&place);
            }
        }
        (old.len() as u64, more)
    }
}
