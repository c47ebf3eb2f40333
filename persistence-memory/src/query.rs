//! Lists of instances.

use crate::{content::Content, instance::Instance, shard::Shard};
use latchwork_core::{
    clock::add,
    store::{
        AttributeFilter, AttributeValue, Comparison, InstanceId, InstanceQuery, InstanceSummary, Page, RunnableItem,
        RunnablePage, RunnableQuery, StoreStatistics, WorkflowStatus,
    },
};
use std::{cmp::Ordering, ops::Bound};

impl Content {
    pub(crate) fn runnable(&self, query: &RunnableQuery) -> RunnablePage {
        let now = self.clock.now();
        let until = add(now, query.horizon);
        let kinds: Vec<_> =
            query.known.iter().filter_map(|(definition, version)| self.known_kind(definition, *version)).collect();
        let mut items: Vec<RunnableItem> = Vec::new();
        for shard in self.shards.each() {
            // Beyond the last of a full page nothing of this shard can come in.
            let full = items.len() >= query.limit;
            let last = items.last().filter(|_| full).map(|item| (item.due, item.item.instance.clone()));
            for kind in &kinds {
                let Some(index) = shard.runnable.get(kind.number) else { continue };
                let from = query.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let wanted = index
                    .range((from, Bound::Unbounded))
                    .take_while(|key| key.0 <= until && last.as_ref().is_none_or(|last| *key < last))
                    .take(query.limit);
                items.extend(wanted.filter_map(|(due, id)| Some(RunnableItem { item: shard.get(id)?.work_item(), due: *due })));
            }
            drop(shard);
            items.sort_unstable_by(|one, other| (one.due, &one.item.instance).cmp(&(other.due, &other.item.instance)));
            items.truncate(query.limit);
        }
        RunnablePage { items, now }
    }

    pub(crate) fn find(&self, query: &InstanceQuery) -> Page<InstanceSummary> {
        let limit = query.effective_limit();
        let in_order = |one: &InstanceSummary, other: &InstanceSummary| {
            let order = one.header.id.cmp(&other.header.id);
            if query.newest_first { order.reverse() } else { order }
        };
        let mut items: Vec<InstanceSummary> = Vec::new();
        for shard in self.shards.each() {
            // One more than asked for, to know whether there are more; beyond the last of those nothing can come in.
            let last = items.last().filter(|_| items.len() > limit).map(|item| item.header.id.clone());
            items.extend(matching(&shard, query, last.as_ref()).take(limit + 1).map(Instance::summary));
            drop(shard);
            items.sort_by(in_order);
            items.truncate(limit + 1);
        }
        let more = items.len() > limit;
        items.truncate(limit);
        Page { items, more }
    }

    pub(crate) fn statistics(&self) -> StoreStatistics {
        let mut common = self.common();
        let mut statistics = StoreStatistics::default();
        statistics.events = common.channels.count() as u64;
        statistics.open_activities = common.activities.waiting(self.clock.now()) as u64;
        for shard in self.shards.each() {
            statistics.runnable += shard.count(WorkflowStatus::Runnable);
            statistics.suspended += shard.count(WorkflowStatus::Suspended);
            statistics.complete += shard.count(WorkflowStatus::Complete);
            statistics.terminated += shard.count(WorkflowStatus::Terminated);
            statistics.inbox += shard.inbox_rows;
            statistics.next_due = statistics.next_due.into_iter().chain(shard.next_due()).min();
        }
        statistics
    }
}

impl Instance {
    pub(crate) fn summary(&self) -> InstanceSummary {
        InstanceSummary { header: self.header(), attributes: self.attributes().to_vec() }
    }

    fn matches(&self, query: &InstanceQuery) -> bool {
        let is = |wanted: &Option<String>, have: Option<&str>| wanted.as_deref().is_none_or(|wanted| have == Some(wanted));
        (query.statuses.is_empty() || query.statuses.contains(&self.status))
            && is(&query.definition, Some(&self.kind.definition))
            && query.version.is_none_or(|version| version == self.kind.version)
            && is(&query.reference, self.reference())
            && is(&query.business_key, self.business_key.as_deref())
            && query.parent.as_ref().is_none_or(|parent| self.parent().is_some_and(|link| link.instance == *parent))
            && query.created_from.is_none_or(|from| self.created >= from)
            && query.created_before.is_none_or(|before| self.created < before)
            && query.ended_from.is_none_or(|from| self.ended.is_some_and(|ended| ended >= from))
            && query.ended_before.is_none_or(|before| self.ended.is_some_and(|ended| ended < before))
            && query.faults.is_none_or(|faults| self.fault_count >= faults)
            && query.attributes.iter().all(|filter| self.passes(filter))
            && query.text.as_deref().is_none_or(|text| self.contains(text))
    }

    fn passes(&self, filter: &AttributeFilter) -> bool {
        let order =
            self.attributes().iter().find(|(name, _)| *name == filter.name).and_then(|(_, value)| compare(value, &filter.value));
        match filter.comparison {
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            Comparison::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        }
    }

    fn contains(&self, text: &str) -> bool {
        self.reference().is_some_and(|reference| reference.contains(text))
            || self.attributes().iter().any(|(_, value)| matches!(value, AttributeValue::Text(value) if value.contains(text)))
    }
}

/// The matching instances of a shard in the order of the query, up to the one called `last`.
fn matching<'a>(shard: &'a Shard, query: &'a InstanceQuery, last: Option<&'a InstanceId>) -> impl Iterator<Item = &'a Instance> {
    let after = query.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    let until = last.map_or(Bound::Unbounded, Bound::Excluded);
    let (forward, backward) = if query.newest_first { (until, after) } else { (after, until) };
    let empty = matches!((forward, backward), (Bound::Excluded(low), Bound::Excluded(high)) if low >= high);
    let range = (!empty).then(|| shard.order.range::<InstanceId, _>((forward, backward)));
    let (oldest, newest) = if query.newest_first { (None, range.map(Iterator::rev)) } else { (range, None) };
    let ids = oldest.into_iter().flatten().chain(newest.into_iter().flatten());
    ids.filter_map(|id| shard.get(id)).filter(|instance| instance.matches(query))
}

/// `None` for values of different types.
fn compare(one: &AttributeValue, other: &AttributeValue) -> Option<Ordering> {
    match (one, other) {
        (AttributeValue::Text(one), AttributeValue::Text(other)) => Some(one.as_bytes().cmp(other.as_bytes())),
        (AttributeValue::Number(one), AttributeValue::Number(other)) => one.partial_cmp(other),
        (AttributeValue::Time(one), AttributeValue::Time(other)) => Some(one.cmp(other)),
        _ => None,
    }
}
