//! `cargo xtask laws`: the laws of the house, checked on what cargo says of it.
//!
//! [`house`] is the small model, [`survey`] fills it from cargo, [`rules`] holds one pure function per law.

mod house;
mod rules;
mod survey;

use anyhow::{Result, bail};

/// Checks every law and prints a line for each; an error when one is broken.
pub(crate) fn run() -> Result<()> {
    let house = survey::house()?;
    let mut broken = 0;
    for law in rules::ALL {
        let violations = (law.check)(&house);
        println!("{} {}", if violations.is_empty() { "kept  " } else { "BROKEN" }, law.text);
        for violation in &violations {
            println!("       {violation}");
        }
        broken += violations.len();
    }
    if broken > 0 {
        bail!("the laws of the house are broken in {broken} places");
    }
    Ok(())
}
