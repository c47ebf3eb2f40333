//! The conformance suite for queue providers.
