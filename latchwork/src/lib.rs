//! Durable workflows for Rust on the database, lock manager and broker a team already runs.
