//! Application locks with SQL Server's semantics.

use std::collections::{HashMap, VecDeque};

/// How a lock is held or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    /// The mode of this name, which SQL Server takes in any case.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "shared" => Some(Self::Shared),
            "exclusive" => Some(Self::Exclusive),
            _ => None,
        }
    }
}

/// A lock belongs to a database and a principal; its name is compared unit by unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    database: String,
    principal: String,
    resource: Vec<u16>,
}

impl Name {
    /// The name as the server keeps it: what is longer than 255 units is cut without a word.
    pub(super) fn new(database: &str, principal: &str, resource: &str) -> Self {
        let resource = resource.encode_utf16().take(255).collect();
        Self { database: database.to_owned(), principal: principal.to_ascii_lowercase(), resource }
    }

    pub(super) fn resource(&self) -> String {
        String::from_utf16_lossy(&self.resource)
    }
}

#[derive(Debug)]
struct Holder {
    session: u16,
    /// One per grant that was not released yet, the oldest first.
    grants: Vec<Mode>,
}

impl Holder {
    fn mode(&self) -> Mode {
        if self.grants.contains(&Mode::Exclusive) { Mode::Exclusive } else { Mode::Shared }
    }
}

#[derive(Debug, Default)]
struct Entry {
    holders: Vec<Holder>,
    waiting: VecDeque<u16>,
}

impl Entry {
    fn allows(&self, session: u16, mode: Mode) -> bool {
        let mut others = self.holders.iter().filter(|holder| holder.session != session);
        let free = match mode {
            Mode::Exclusive => others.next().is_none(),
            Mode::Shared => others.all(|holder| holder.mode() == Mode::Shared),
        };
        let holds = self.holders.iter().any(|holder| holder.session == session);
        free && (holds || self.waiting.front().is_none_or(|first| *first == session))
    }
}

/// All application locks of the server.
#[derive(Debug, Default)]
pub(super) struct Locks(HashMap<Name, Entry>);

impl Locks {
    /// One try. The same session is granted again, and counted.
    pub(super) fn acquire(&mut self, session: u16, name: &Name, mode: Mode) -> bool {
        let entry = self.0.entry(name.clone()).or_default();
        if !entry.allows(session, mode) {
            return false;
        }
        entry.waiting.retain(|waiting| *waiting != session);
        match entry.holders.iter_mut().find(|holder| holder.session == session) {
            Some(holder) => holder.grants.push(mode),
            None => entry.holders.push(Holder { session, grants: vec![mode] }),
        }
        true
    }

    pub(super) fn wait(&mut self, session: u16, name: &Name) {
        self.0.entry(name.clone()).or_default().waiting.push_back(session);
    }

    pub(super) fn give_up(&mut self, session: u16, name: &Name) {
        if let Some(entry) = self.0.get_mut(name) {
            entry.waiting.retain(|waiting| *waiting != session);
        }
        self.forget_if_unused(name);
    }

    /// Takes one grant back; `false` when the session has none.
    pub(super) fn release(&mut self, session: u16, name: &Name) -> bool {
        let Some(entry) = self.0.get_mut(name) else { return false };
        let Some(holder) = entry.holders.iter_mut().find(|holder| holder.session == session) else { return false };
        holder.grants.pop();
        entry.holders.retain(|holder| !holder.grants.is_empty());
        self.forget_if_unused(name);
        true
    }

    fn forget_if_unused(&mut self, name: &Name) {
        if self.0.get(name).is_some_and(|entry| entry.holders.is_empty() && entry.waiting.is_empty()) {
            self.0.remove(name);
        }
    }

    /// How the session holds it.
    pub(super) fn mode(&self, session: u16, name: &Name) -> Option<Mode> {
        self.0.get(name)?.holders.iter().find(|holder| holder.session == session).map(Holder::mode)
    }

    /// Whether a try of this session would be granted now.
    pub(super) fn is_grantable(&self, session: u16, name: &Name, mode: Mode) -> bool {
        self.0.get(name).is_none_or(|entry| entry.allows(session, mode))
    }

    pub(super) fn end_session(&mut self, session: u16) {
        self.0.retain(|_, entry| {
            entry.holders.retain(|holder| holder.session != session);
            entry.waiting.retain(|waiting| *waiting != session);
            !entry.holders.is_empty() || !entry.waiting.is_empty()
        });
    }

    /// What each session holds: session, resource, grants.
    pub(super) fn held(&self) -> impl Iterator<Item = (u16, &Name, usize)> {
        self.0
            .iter()
            .flat_map(|(name, entry)| entry.holders.iter().map(move |holder| (holder.session, name, holder.grants.len())))
    }
}
