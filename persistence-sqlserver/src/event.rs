//! Publishing events.

use crate::{
    error::Failure,
    record::{as_json, micros, work_item},
    sql::{Columns, Request, batch},
};
use latchwork_core::{
    clock::whole_micros,
    queue::WorkItem,
    store::{EventId, NewEvent, stored},
};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// Locks the channels, inserts the events, locks the headers of who waits for them, and matches.
pub(crate) const PUBLISH: &str = batch!("begin" "publish_read" "events_declare" "events_read" "publish_lock" "lock_stripes" "publish_touch"
    "lock_headers" "events_insert" "events_waits" "match" "events_wake" "commit");

/// An event on its way: place, number of who publishes it, id, name, key, stripe, time, data.
#[derive(Debug, Serialize)]
pub(crate) struct EventRow<'a>(usize, usize, &'a EventId, &'a str, &'a str, u8, Option<i64>, Option<&'a str>);

impl<'a> EventRow<'a> {
    pub(crate) fn new(at: usize, k: usize, event: &'a NewEvent) -> Self {
        let time = event.time.map(|time| micros(whole_micros(time)));
        let stripe = stored::stripe(&event.name, &event.key);
        Self(at, k, &event.id, &event.name, &event.key, stripe, time, as_json(event.data.as_ref()))
    }

    pub(crate) fn stripe(&self) -> u8 {
        self.5
    }
}

/// A request for the events of several calls. One that stands there twice is sent once.
pub(crate) fn publish(events: &[&NewEvent]) -> Result<Request, Failure> {
    let mut seen = BTreeSet::new();
    let rows: Vec<EventRow<'_>> = events
        .iter()
        .enumerate()
        .filter(|(_, event)| seen.insert(event.id.as_str()))
        .map(|(at, event)| EventRow::new(at, at, event))
        .collect();
    Ok(Request::new(PUBLISH).with(serde_json::to_string(&rows)?))
}

/// Whom each of the events wakes.
pub(crate) fn published(events: &[&NewEvent], rows: Vec<Columns>) -> Result<Vec<Vec<WorkItem>>, Failure> {
    let mut woken: HashMap<&str, Vec<WorkItem>> = HashMap::new();
    for mut columns in rows {
        let (_, at) = (columns.int()?, columns.number::<usize>()?);
        let item = work_item(&mut columns)?;
        if let Some(event) = events.get(at) {
            woken.entry(event.id.as_str()).or_default().push(item);
        }
    }
    Ok(events.iter().map(|event| woken.get(event.id.as_str()).cloned().unwrap_or_default()).collect())
}

/// Each instance once, in the order of its first hint.
pub(crate) fn each_once(items: impl Iterator<Item = WorkItem>) -> Vec<WorkItem> {
    let mut seen = BTreeSet::new();
    items.filter(|item| seen.insert(item.instance.clone())).collect()
}
