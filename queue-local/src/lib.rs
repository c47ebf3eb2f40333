//! In-process queue of workflow hints for Latchwork: bounded and fair.
