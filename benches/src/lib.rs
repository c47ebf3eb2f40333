//! Benchmark workloads of Latchwork.
