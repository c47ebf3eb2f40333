//! A virtual clock.
