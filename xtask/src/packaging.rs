//! Whether the published crates pack, and what the packages hold.

use anyhow::{Result, bail};

use crate::command::CommandLine;
use crate::workspace::Metadata;

/// What a reader of a package must find in it.
const MUST_HOLD: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/lib.rs"];

/// Packs every published crate without sending it anywhere.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::read()?;
    for package in metadata.packages.iter().filter(|package| package.is_published()) {
        let listed = CommandLine::cargo(["package", "--list", "--allow-dirty", "--package", &package.name]).read()?;
        let missing = missing(&listed);
        if !missing.is_empty() {
            bail!("the package {} lacks {}", package.name, missing.join(", "));
        }
    }
    // Compiling what was packed is left out: the other stages compiled the same sources.
    CommandLine::cargo(["publish", "--workspace", "--dry-run", "--no-verify", "--allow-dirty"]).run()
}

fn missing(listed: &str) -> Vec<&'static str> {
    let holds = |file: &str| listed.lines().any(|line| line.replace('\\', "/") == file);
    MUST_HOLD.iter().copied().filter(|file| !holds(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_not_packed_is_named() {
        assert_eq!(missing("Cargo.toml\nLICENSE-MIT\nREADME.md\nsrc\\lib.rs\n"), ["LICENSE-APACHE"]);
    }
}
