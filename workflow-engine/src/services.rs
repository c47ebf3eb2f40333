//! Services for step bodies: a typed registry on the host.

use crate::data::AnyData;
use std::{
    any::{TypeId, type_name},
    collections::HashMap,
    fmt,
    sync::Arc,
};

/// A step asked for a service that the host does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no service of type `{0}` is registered; add it with `.service(..)` on the host's builder")]
pub struct ServiceMissing(pub(crate) &'static str);

/// The services of a host, by type. One of each type; registering another of the same type replaces it.
#[derive(Clone, Default)]
pub struct Services {
    by_type: HashMap<TypeId, (&'static str, Arc<AnyData>)>,
}

impl Services {
    /// Adds a service.
    pub fn insert<T: Send + Sync + 'static>(&mut self, service: T) {
        self.by_type.insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(service)));
    }

    /// The service of this type.
    ///
    /// # Errors
    /// [`ServiceMissing`], naming the type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<&T, ServiceMissing> {
        let found = self.by_type.get(&TypeId::of::<T>()).and_then(|(_, service)| service.downcast_ref());
        found.ok_or(ServiceMissing(type_name::<T>()))
    }

    pub(crate) fn has(&self, service: TypeId) -> bool {
        self.by_type.contains_key(&service)
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_type.values().map(|(name, _)| name)).finish()
    }
}
