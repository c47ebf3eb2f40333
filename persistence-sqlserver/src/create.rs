//! Creating instances.

use crate::{
    error::Failure,
    record::{attribute_values, status},
    sql::{Columns, Request, batch},
};
use latchwork_core::store::{CreateOutcome, InstanceId, NewInstance, PointerId};
use serde::Serialize;
use std::collections::BTreeMap;

/// Finds what is there, and inserts the rest.
pub(crate) const CREATE: &str =
    batch!("begin" "create_begin" "create_declare" "create_read" "create_now" "create_write" "create_answer" "commit");

/// An instance on its way: place, number of its creator, id, definition, version, fingerprint, business key, reference, parent, its
/// pointer, data.
#[derive(Debug, Serialize)]
pub(crate) struct InstanceRow<'a>(
    usize,
    usize,
    &'a InstanceId,
    &'a str,
    u32,
    &'a str,
    Option<&'a str>,
    Option<&'a str>,
    Option<&'a InstanceId>,
    Option<PointerId>,
    &'a str,
);

/// An attribute on its way: place of its instance, name, text, number, time.
pub(crate) type AttributeRow<'a> = (usize, &'a str, Option<&'a str>, Option<f64>, Option<i64>);

/// Instances on their way, with their attributes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Creates<'a> {
    pub(crate) creates: Vec<InstanceRow<'a>>,
    pub(crate) attributes: Vec<AttributeRow<'a>>,
}

impl<'a> Creates<'a> {
    pub(crate) fn add(&mut self, k: usize, instance: &'a NewInstance) {
        let at = self.creates.len();
        self.creates.push(InstanceRow(
            at,
            k,
            &instance.id,
            &instance.definition,
            instance.version,
            &instance.fingerprint,
            instance.business_key.as_deref(),
            instance.reference.as_deref(),
            instance.parent.as_ref().map(|parent| &parent.instance),
            instance.parent.as_ref().map(|parent| parent.pointer),
            instance.data.as_str(),
        ));
        self.attributes.extend(attribute_rows(at, &instance.attributes));
    }
}

pub(crate) fn attribute_rows(
    at: usize,
    attributes: &[(String, latchwork_core::store::AttributeValue)],
) -> impl Iterator<Item = AttributeRow<'_>> {
    attributes.iter().map(move |(name, value)| {
        let (text, number, time) = attribute_values(value);
        (at, name.as_str(), text, number, time)
    })
}

pub(crate) fn create<'a>(instances: impl Iterator<Item = &'a NewInstance>) -> Result<Request, Failure> {
    let mut creates = Creates::default();
    for instance in instances {
        creates.add(0, instance);
    }
    Ok(Request::new(CREATE).with(serde_json::to_string(&creates)?))
}

/// What became of each of so many instances.
pub(crate) fn created(count: usize, rows: Vec<Columns>) -> Result<Vec<CreateOutcome>, Failure> {
    let mut answers = BTreeMap::new();
    for mut columns in rows {
        let (_, at, state) = (columns.int()?, columns.number::<usize>()?, columns.int()?);
        let (instance, status) = (columns.instance()?, status(&mut columns)?);
        answers.insert(at, if state == 2 { CreateOutcome::Exists { instance, status } } else { CreateOutcome::Created });
    }
    if answers.len() == count {
        Ok(answers.into_values().collect())
    } else {
        Err(Failure::corrupt(format!("{count} instances were to be created, the server tells of {}", answers.len())))
    }
}
