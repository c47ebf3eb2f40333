use crate::{body::Known, definition::Definition};
use latchwork_core::store::InstanceId;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The definitions of a host.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    definitions: HashMap<Arc<str>, BTreeMap<u32, Registered>>,
    fingerprints: Arc<Known>,
    /// What was reported already: once for each definition, not for each hint.
    reported: Mutex<HashSet<(Arc<str>, u32, &'static str)>>,
    /// How often hints of unknown definitions were offered to others.
    offers: Mutex<HashMap<InstanceId, u32>>,
}

/// A definition, and why no instance of it may be started here, if so.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    pub(crate) definition: Arc<Definition>,
    /// The difference to the shape of the same version that open instances use.
    pub(crate) conflict: Option<String>,
}

impl Registry {
    pub(crate) fn insert(&mut self, definition: Arc<Definition>, conflict: Option<String>) {
        // Nobody else has it while definitions are registered.
        Arc::make_mut(&mut self.fingerprints).insert((definition.id.clone(), definition.version), definition.fingerprint.clone());
        let versions = self.definitions.entry(definition.id.clone()).or_default();
        versions.insert(definition.version, Registered { definition, conflict });
    }

    pub(crate) fn get(&self, id: &str, version: u32) -> Option<&Registered> {
        self.definitions.get(id)?.get(&version)
    }

    /// The fingerprints of all.
    pub(crate) fn fingerprints(&self) -> Arc<Known> {
        self.fingerprints.clone()
    }

    /// The highest version.
    pub(crate) fn latest(&self, id: &str) -> Option<&Registered> {
        self.definitions.get(id)?.values().next_back()
    }

    /// All (definition, version) pairs, sorted.
    pub(crate) fn known(&self) -> Arc<[(Arc<str>, u32)]> {
        let mut known: Vec<_> =
            self.definitions.iter().flat_map(|(id, versions)| versions.keys().map(|version| (id.clone(), *version))).collect();
        known.sort();
        known.into()
    }

    pub(super) fn offers(&self) -> MutexGuard<'_, HashMap<InstanceId, u32>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the first report of its kind on this definition.
    pub(crate) fn report_once(&self, id: &Arc<str>, version: u32, kind: &'static str) -> bool {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert((id.clone(), version, kind))
    }
}
