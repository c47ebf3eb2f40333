//! What the workloads found, as a table or as lines of JSON.

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;
use std::time::Duration;

/// One measurement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) backend: String,
    /// What was counted.
    pub(crate) what: String,
    /// Per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50: Option<f64>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<f64>,
    /// What it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw_what: Option<String>,
    /// The rate, or the time, over the raw one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
}

impl Row {
    pub(crate) fn new(workload: &'static str, backend: impl Into<String>, what: impl Into<String>) -> Self {
        Self { workload, backend: backend.into(), what: what.into(), ..Self::default() }
    }

    pub(crate) fn rate(mut self, count: usize, took: Duration) -> Self {
        self.rate = Some(count as f64 / took.as_secs_f64());
        self
    }

    pub(crate) fn times(mut self, times: &mut [Duration]) -> Self {
        times.sort();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
            times.get(index).map(|time| time.as_secs_f64() * 1e6)
        };
        (self.p50, self.p99) = (at(0.5), at(0.99));
        self
    }

    /// Compares the rate with another rate.
    pub(crate) fn against(mut self, raw: f64, what: impl Into<String>) -> Self {
        self.ratio = self.rate.map(|rate| rate / raw);
        (self.raw, self.raw_what) = (Some(raw), Some(what.into()));
        self
    }

    /// Compares the median time with another time, in microseconds.
    pub(crate) fn median_against(mut self, raw: f64, what: impl Into<String>) -> Self {
        self.ratio = self.p50.map(|p50| p50 / raw);
        (self.raw, self.raw_what) = (Some(raw), Some(what.into()));
        self
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    rows: Vec<Row>,
    json: bool,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { rows: Vec::new(), json }
    }

    /// JSON is printed as it comes: a long run that is broken off leaves what it found.
    pub(crate) fn add(&mut self, row: Row) {
        if self.json {
            println!("{}", serde_json::to_string(&row).unwrap_or_default());
        } else {
            eprintln!("{} {} {}: done", row.workload, row.backend, row.what);
        }
        self.rows.push(row);
    }

    pub(crate) fn print(&self) {
        if self.json {
            return;
        }
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header(["", "backend", "what", "per second", "p50", "p99", "compared with", "", "ratio"]);
        let number = |value: Option<f64>| value.map(|value| grouped(value.round() as i64)).unwrap_or_default();
        let micros = |value: Option<f64>| value.map(|value| format!("{value:.0} us")).unwrap_or_default();
        for row in &self.rows {
            table.add_row([
                row.workload.to_owned(),
                row.backend.clone(),
                row.what.clone(),
                number(row.rate),
                micros(row.p50),
                micros(row.p99),
                row.raw_what.clone().unwrap_or_default(),
                number(row.raw),
                row.ratio.map(|ratio| format!("{ratio:.3}")).unwrap_or_default(),
            ]);
        }
        println!("{table}");
    }
}

fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
