//! Wakes the waiting consumers of this process.

use latchwork_core::name::Namespace;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::Notify;

type Bells = HashMap<(PathBuf, Namespace), Weak<Notify>>;

/// The bells of this process: one for each file and namespace, shared by all queues on it.
static BELLS: Mutex<Option<Bells>> = Mutex::new(None);

/// The bell of a file, under its canonical path, and a namespace.
pub(crate) fn of(file: &Path, namespace: &Namespace) -> Arc<Notify> {
    // Nothing that can panic half-way through a change runs under this lock.
    let mut bells = BELLS.lock().unwrap_or_else(PoisonError::into_inner);
    let bells = bells.get_or_insert_default();
    let key = (file.to_owned(), namespace.clone());
    if let Some(bell) = bells.get(&key).and_then(Weak::upgrade) {
        return bell;
    }
    bells.retain(|_, bell| bell.strong_count() > 0);
    let bell = Arc::new(Notify::new());
    bells.insert(key, Arc::downgrade(&bell));
    bell
}
