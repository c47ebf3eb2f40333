//! What the operating system says of this process.

use std::time::Duration;

/// Memory in use, in bytes; 0 where it cannot be told.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    kib("VmRSS:").unwrap_or(0) * 1024
}

/// Processor time used so far; zero where it cannot be told.
pub(crate) fn processor_time() -> Duration {
    // Fields 14 and 15, counted behind the name in brackets, in ticks of which Linux has 100 a second for programs.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
