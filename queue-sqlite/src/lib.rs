//! A table queue on SQLite for Latchwork: batch claims with leases, redelivery and delay.
