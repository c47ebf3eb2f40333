use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::Notify;

/// The bells of this process.
static BELLS: Mutex<Option<HashMap<String, Weak<Notify>>>> = Mutex::new(None);

/// What wakes the waiting consumers of this process: one for each line of hints, which `line` names, shared by all queues on it.
#[must_use]
pub fn bell(line: &str) -> Arc<Notify> {
    // Nothing that can panic half-way through a change runs under this lock.
    let mut bells = BELLS.lock().unwrap_or_else(PoisonError::into_inner);
    let bells = bells.get_or_insert_default();
    if let Some(bell) = bells.get(line).and_then(Weak::upgrade) {
        return bell;
    }
    bells.retain(|_, bell| bell.strong_count() > 0);
    let bell = Arc::new(Notify::new());
    bells.insert(line.to_owned(), Arc::downgrade(&bell));
    bell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_on_one_line_share_a_bell_and_others_do_not() {
        let (one, again, other) = (bell("one"), bell("one"), bell("other"));
        assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &other));
    }
}
