//! Activities in the order in which workers get them.

use latchwork_core::{
    clock::Timestamp,
    store::{ActivityToken, InstanceId, SubscriptionId},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Which activity.
pub(crate) type ActivityKey = (InstanceId, SubscriptionId);

#[derive(Debug)]
struct Entry {
    number: u64,
    name: Arc<str>,
    claim: Option<(ActivityToken, Timestamp)>,
}

/// All open activities.
#[derive(Debug, Default)]
pub(crate) struct Activities {
    entries: HashMap<ActivityKey, Entry>,
    /// Those that can be handed out, oldest first.
    free: HashMap<Arc<str>, BTreeMap<u64, ActivityKey>>,
    /// Those in the hands of workers, by the end of their claims.
    claimed: BTreeMap<(Timestamp, u64), ActivityKey>,
    tokens: HashMap<ActivityToken, ActivityKey>,
    last: u64,
}

impl Activities {
    pub(crate) fn add(&mut self, key: ActivityKey, name: Arc<str>) {
        if self.entries.contains_key(&key) {
            return;
        }
        self.last += 1;
        self.free.entry(name.clone()).or_default().insert(self.last, key.clone());
        self.entries.insert(key, Entry { number: self.last, name, claim: None });
    }

    pub(crate) fn remove(&mut self, key: &ActivityKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        if let Some((token, expires)) = entry.claim {
            self.tokens.remove(&token);
            self.claimed.remove(&(expires, entry.number));
        }
        self.remove_free(&entry.name, entry.number);
    }

    fn remove_free(&mut self, name: &Arc<str>, number: u64) {
        if let Some(free) = self.free.get_mut(name) {
            free.remove(&number);
            if free.is_empty() {
                self.free.remove(name);
            }
        }
    }

    /// Takes the claims back whose time is over. Their tokens stay known until the next claim, only to be refused.
    fn expire(&mut self, now: Timestamp) {
        while let Some(first) = self.claimed.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, number), key) = first.remove_entry();
            if let Some(entry) = self.entries.get(&key) {
                self.free.entry(entry.name.clone()).or_default().insert(number, key);
            }
        }
    }

    /// The free ones of these names, oldest first.
    fn candidates<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a ActivityKey> {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut lists: Vec<_> =
            names.into_iter().filter_map(|name| self.free.get(name)).map(|free| free.iter().peekable()).collect();
        std::iter::from_fn(move || {
            let heads = lists.iter_mut().enumerate().filter_map(|(at, list)| list.peek().map(|(number, _)| (**number, at)));
            let (_, oldest) = heads.min()?;
            lists.get_mut(oldest)?.next().map(|(_, key)| key)
        })
    }

    /// Claims the oldest one of these names for which `usable` holds.
    pub(crate) fn claim(
        &mut self,
        names: &[String],
        now: Timestamp,
        expires: Timestamp,
        usable: impl FnMut(&&ActivityKey) -> bool,
    ) -> Option<(ActivityKey, ActivityToken)> {
        self.expire(now);
        let key = self.candidates(names).find(usable)?.clone();
        let entry = self.entries.get_mut(&key)?;
        let token = ActivityToken::new();
        if let Some((old, _)) = entry.claim.replace((token.clone(), expires)) {
            self.tokens.remove(&old);
        }
        let (name, number) = (entry.name.clone(), entry.number);
        self.remove_free(&name, number);
        self.claimed.insert((expires, number), key.clone());
        self.tokens.insert(token.clone(), key.clone());
        Some((key, token))
    }

    /// Makes the activity of this token free again.
    pub(crate) fn release(&mut self, token: &ActivityToken) -> bool {
        let Some(key) = self.tokens.remove(token) else { return false };
        let Some(entry) = self.entries.get_mut(&key) else { return false };
        if let Some((_, expires)) = entry.claim.take() {
            self.claimed.remove(&(expires, entry.number));
        }
        self.free.entry(entry.name.clone()).or_default().insert(entry.number, key);
        true
    }

    /// Ends the claim of this token with a result, when it is still good; no other is handed out.
    pub(crate) fn submit(&mut self, token: &ActivityToken, now: Timestamp) -> Option<ActivityKey> {
        let key = self.tokens.get(token)?.clone();
        let entry = self.entries.get_mut(&key)?;
        let expires = entry.claim.as_ref().map(|(_, expires)| *expires).filter(|expires| now < *expires)?;
        entry.claim = None;
        self.claimed.remove(&(expires, entry.number));
        self.tokens.remove(token);
        Some(key)
    }

    /// How many have no live token and no result.
    pub(crate) fn waiting(&mut self, now: Timestamp) -> usize {
        self.expire(now);
        self.free.values().map(BTreeMap::len).sum()
    }
}
