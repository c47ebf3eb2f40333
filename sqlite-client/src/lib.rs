//! What the SQLite crates of Latchwork share: one writer per process, readers, migrations, error classes.
