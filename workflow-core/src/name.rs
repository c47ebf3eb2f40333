//! The rules for names and keys, checked where they enter.
//!
//! Names are compared byte by byte on every backend. A name is 1 to 200 bytes of UTF-8, without control characters and
//! without white space at either end, so that no backend's collation or padding can make two names one.

use crate::limits;
use std::{fmt, sync::Arc};

/// Why a name, key or namespace was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {shown:?} is refused: {reason}")]
#[non_exhaustive]
pub struct InvalidName {
    /// What kind of name it is, for example `business key`.
    pub what: &'static str,
    /// The name, cut to 64 bytes.
    pub shown: String,
    /// The rule that it breaks.
    pub reason: &'static str,
}

/// Checks a name or key of up to [`limits::NAME_BYTES`] bytes. `what` names it in the error, for example `event name`.
///
/// # Errors
/// [`InvalidName`] with the rule that is broken.
pub fn check(what: &'static str, name: &str) -> Result<(), InvalidName> {
    check_up_to(what, name, limits::NAME_BYTES, "it is longer than 200 bytes")
}

/// Checks the name of a user's lock: as [`check`], up to [`limits::LOCK_NAME_BYTES`] bytes, and not beginning with `!`,
/// which is kept for internal keys.
///
/// # Errors
/// [`InvalidName`] with the rule that is broken.
pub fn check_lock(name: &str) -> Result<(), InvalidName> {
    check_up_to("lock name", name, limits::LOCK_NAME_BYTES, "it is longer than 4096 bytes")?;
    if name.starts_with('!') {
        Err(refused("lock name", name, "names that begin with `!` are kept for internal use"))
    } else {
        Ok(())
    }
}

fn check_up_to(what: &'static str, name: &str, bytes: usize, too_long: &'static str) -> Result<(), InvalidName> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > bytes {
        too_long
    } else if name.chars().any(char::is_control) {
        "it has a control character"
    } else if name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) {
        "it has white space at an end"
    } else {
        return Ok(());
    };
    Err(refused(what, name, reason))
}

fn refused(what: &'static str, name: &str, reason: &'static str) -> InvalidName {
    InvalidName { what, shown: limits::cut(name, 64).to_owned(), reason }
}

/// The namespace of a cluster: 1 to 32 of `a-z 0-9 - _`. Clusters with different namespaces share a server undisturbed.
///
/// The default is `wfc`, so that the lock keys of instances and users are those of Workflow Core for .NET.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// A namespace of this name.
    ///
    /// # Errors
    /// [`InvalidName`] when it is empty, longer than 32 bytes, or has another character than `a-z 0-9 - _`.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let reason = if name.is_empty() {
            "it is empty"
        } else if name.len() > limits::NAMESPACE_BYTES {
            "it is longer than 32 bytes"
        } else if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_') {
            "only a-z, 0-9, - and _ are allowed"
        } else {
            return Ok(Self(name.into()));
        };
        Err(refused("namespace", name, reason))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("wfc".into())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_refused_with_the_rule_it_breaks() {
        for (name, reason) in
            [("", "it is empty"), (" a", "it has white space at an end"), ("a\n b", "it has a control character")]
        {
            assert_eq!(check("event name", name).map_err(|e| e.reason), Err(reason), "{name:?}");
        }
        assert_eq!(check("event name", &"x".repeat(201)).map_err(|e| e.reason), Err("it is longer than 200 bytes"));
        assert_eq!(check("event name", &"x".repeat(200)), Ok(()));
        assert_eq!(check("event name", "zażółć gęślą"), Ok(()));
    }

    #[test]
    fn internal_lock_names_are_refused_to_users() {
        assert!(check_lock("!poll").is_err());
        assert!(check_lock("poll!").is_ok());
    }

    #[test]
    fn a_namespace_has_a_small_alphabet() {
        assert!(Namespace::new("orders-2").is_ok());
        assert!(Namespace::new("Orders").is_err());
        assert!(Namespace::new(&"a".repeat(33)).is_err());
        assert_eq!(Namespace::default().as_str(), "wfc");
    }
}
