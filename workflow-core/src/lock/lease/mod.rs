//! Locks as leases in tables of a database: everything but the statements.
//!
//! A node has one *host*: a row with a time until which it owns its locks, by the server's clock, which is renewed again and again.
//! Its locks are rows that name the host. So the cost of renewal does not grow with the number of locks, and the end of a lease
//! is the end of all locks under it. A backend supplies a [`LeaseTable`], six requests; [`LeaseLocks`] makes a lock provider of it:
//!
//! * A lease is valid for the renewal period and a margin. Only the server's clock decides whether it has expired there. Here a
//!   deadline is kept, a little before it, counted from the moment before the last renewal was *sent*. It fires the loss by
//!   itself, whether or not the server can be reached.
//! * The deadline is kept by two clocks, and the first to reach it counts: the monotonic one, and that of the wall, which goes on
//!   while the machine is suspended. So a node that was paused learns of the loss by its first call after waking. (A
//!   clock on the wall that is set forward by more than the rest of the lease ends it too: work is repeated, no state is lost.)
//! * What has expired is never revived, here or there: an answer to a renewal that comes after the deadline counts for nothing. The
//!   node enters as a new host, when it needs one.
//! * Acquires and releases that come while a request is under way go together in the next, releases first. Renewals have a task,
//!   and a connection, of their own, and wait for none of these.
//! * A release names the grant that it frees by its fencing token, so a stale one frees nothing. What became of a request that got no
//!   answer is not known: what it may have granted is given back, by a later request that the table never does before it.

mod keeper;
mod options;
mod provider;
mod requests;
mod table;
mod term;

pub use options::LeaseOptions;
pub use provider::LeaseLocks;
pub use table::{HostId, LeaseAnswer, LeaseBatch, LeaseRelease, LeaseTable};
