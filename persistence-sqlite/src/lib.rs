//! SQLite store for Latchwork: crash-safe, group commit, several processes on one file.
