//! The engine of Latchwork, durable workflows for Rust: builder, executor, host, consumers and poller.
