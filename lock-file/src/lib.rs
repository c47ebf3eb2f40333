#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`FileLocks`] | the provider |
//! | [`FileLockOptions`], [`Layout`] | how it is opened |
//! | [`UseFileLocking`] | wires it into a host |

mod directory;
mod entry;
mod files;
mod options;
mod os;
mod place;
mod provider;
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))),
    path = "no_ranges.rs"
)]
mod ranges;
#[cfg(test)]
mod tests;
mod turn;

pub use options::{FileLockOptions, Layout};
pub use provider::FileLocks;

use latchwork_core::options::Configure;
use std::path::PathBuf;

/// `use_file_locking` on a host's builder.
pub trait UseFileLocking: Configure {
    /// Takes locks from this directory, which is made when it is missing: all processes of this machine that do so, in the
    /// same namespace, exclude each other.
    fn use_file_locking(mut self, directory: impl Into<PathBuf>) -> Self {
        let options = FileLockOptions::new(directory);
        self.options().use_distributed_lock_manager(async move |context| {
            Ok(FileLocks::open_with(options.with_namespace(context.namespace)).await?)
        });
        self
    }
}

impl<T: Configure> UseFileLocking for T {}
