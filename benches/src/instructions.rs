//! Instruction counts: the same whatever else the machine does, so that a change can be judged by them.

use crate::report::{Report, Row};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Counts the instructions of a small and a larger run of B1 and B2 under valgrind; the difference is the cost of the steps.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    for (workload, small, large, steps) in [("B1", "100", "20", 4_400), ("B2", "10", "5", 24_000)] {
        let (small, large) = (count(workload, small)?, count(workload, large)?);
        let each = large.saturating_sub(small) / steps;
        let mut row = Row::new(if workload == "B1" { "B1" } else { "B2" }, "memory", "instructions per step");
        row.rate = Some(each as f64);
        report.add(row);
    }
    Ok(())
}

fn count(workload: &str, divide: &str) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("callgrind.out");
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe()?)
        .args([workload, "--divide", divide])
        .output()
        .context("valgrind is needed to count instructions; install it")?;
    if !run.status.success() {
        bail!("valgrind failed: {}", String::from_utf8_lossy(&run.stderr));
    }
    let text = std::fs::read_to_string(&output)?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ")).context("callgrind wrote no totals")?;
    Ok(totals.trim().parse()?)
}
