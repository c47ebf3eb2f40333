//! The conformance suite for lock providers.
