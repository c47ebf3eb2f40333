//! In-process keyed locks for Latchwork: asynchronous and blocking, with time-outs, re-entrancy and loss signals.
