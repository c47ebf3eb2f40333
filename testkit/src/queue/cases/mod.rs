//! The cases. Each takes a fixture whose queue is empty, and says what the provider did wrong.

mod delivery;
mod lifetime;
mod load;
mod redelivery;

pub use delivery::*;
pub use lifetime::*;
pub use load::*;
pub use redelivery::*;
