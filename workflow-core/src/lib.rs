//! Contracts of Latchwork, durable workflows for Rust: models, provider traits, errors, options and clock.
