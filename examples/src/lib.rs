//! Runnable examples of Latchwork, among them a three-node cluster.
