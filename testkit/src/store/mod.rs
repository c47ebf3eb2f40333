//! The conformance suite for stores.
