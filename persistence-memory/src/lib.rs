//! In-memory store for Latchwork: tests, demonstrations and workflows that need not survive the process.
