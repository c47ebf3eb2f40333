//! Conformance suites and test tools for Latchwork providers: locks, queues, stores, virtual clock, faults.
