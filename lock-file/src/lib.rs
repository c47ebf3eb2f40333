//! File locks for Latchwork: mutual exclusion between the processes of one machine.
