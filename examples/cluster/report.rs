//! The end of a run: a table, or one line of JSON.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::{
    audit::{Findings, Loss},
    fleet::Fate,
    progress::NodeProgress,
};

/// The numbers of a run. Their meaning is that of the [audit](crate::audit).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// The orders of the file, or as many of them as were asked for.
    pub(crate) orders: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated_transitions: u64,
    pub(crate) repeated_bodies: u64,
    /// From the first start to the last end, in this run.
    pub(crate) seconds: f64,
    /// Steps with an effect that were done in this run, each counted once.
    pub(crate) steps_per_second: f64,
}

/// A node in the report.
#[derive(Clone, Debug)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    pub(crate) fate: Fate,
    pub(crate) progress: NodeProgress,
}

/// All that is told of a run that has ended.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) summary: Summary,
    pub(crate) nodes: Vec<NodeLine>,
    pub(crate) findings: Findings,
    remarks: Vec<String>,
}

impl Report {
    /// The report of a run that has ended: what is open is lost.
    pub(crate) fn new(orders: usize, mut findings: Findings, nodes: Vec<NodeLine>, seconds: f64, steps: u64) -> Self {
        findings.lost.append(&mut findings.open);
        let summary = Summary {
            orders: orders as u64,
            completed: findings.completed,
            failed: findings.failed.len() as u64,
            lost: findings.lost.len() as u64,
            duplicated_transitions: findings.duplicated_transitions.len() as u64,
            repeated_bodies: findings.repeated_bodies,
            seconds: rounded(seconds),
            steps_per_second: rounded(if seconds > 0.0 { steps as f64 / seconds } else { 0.0 }),
        };
        Self { summary, nodes, findings, remarks: Vec::new() }
    }

    /// Something else to know.
    pub(crate) fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    /// Whether nothing was lost and nothing was done twice.
    pub(crate) fn is_sound(&self) -> bool {
        self.summary.lost == 0 && self.summary.duplicated_transitions == 0
    }

    /// One line of JSON.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.summary)
    }

    /// The tables.
    pub(crate) fn tables(&self) -> String {
        let Summary { orders, completed, failed, lost, duplicated_transitions, repeated_bodies, seconds, steps_per_second } =
            &self.summary;
        let mut nodes = table(&["node", "steps", "orders shipped", "process"]);
        for NodeLine { name, fate, progress } in &self.nodes {
            nodes.add_row([name.clone(), progress.steps.to_string(), progress.shipped.to_string(), fate.to_string()]);
        }
        right_align(&mut nodes, &[1, 2]);
        let mut all = table(&["", "all"]);
        for (name, value) in [
            ("orders", orders.to_string()),
            ("completed", completed.to_string()),
            ("failed", failed.to_string()),
            ("lost", lost.to_string()),
            ("duplicated transitions", duplicated_transitions.to_string()),
            ("repeated bodies", repeated_bodies.to_string()),
            ("seconds", format!("{seconds:.2}")),
            ("steps/s", format!("{steps_per_second:.0}")),
        ] {
            all.add_row([name.to_owned(), value]);
        }
        right_align(&mut all, &[1]);
        format!("{nodes}\n{all}")
    }

    /// What stands behind the numbers of a sound run.
    pub(crate) fn details(&self) -> Vec<String> {
        let failed = self.findings.failed.iter().map(|(order, reason)| format!("failed: order {order}: {reason}"));
        let mut lines = some(failed, 3);
        lines.extend(self.remarks.iter().cloned());
        lines
    }

    /// What is wrong, if anything.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut lines = some(self.findings.lost.iter().map(|loss: &Loss| format!("lost: {loss}")), 20);
        let twice = self.findings.duplicated_transitions.iter();
        lines.extend(some(twice.map(|(order, step)| format!("done twice: order {order}: {step}")), 20));
        lines
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn some(lines: impl ExactSizeIterator<Item = String>, at_most: usize) -> Vec<String> {
    let more = lines.len().saturating_sub(at_most);
    let mut shown: Vec<String> = lines.take(at_most).collect();
    if more > 0 {
        shown.push(format!("  ... and {more} more"));
    }
    shown
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table
}

fn right_align(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Findings) -> Report {
        let progress = NodeProgress { steps: 12_345, shipped: 7 };
        let nodes = vec![NodeLine { name: "node-1".to_owned(), fate: Fate::Killed, progress }];
        Report::new(10, findings, nodes, 2.0, 50)
    }

    #[test]
    fn the_json_line_has_the_promised_fields_in_their_order() {
        let failed = vec![("A-1".to_owned(), "no such article".to_owned())];
        let sound = report(Findings { completed: 9, failed, repeated_bodies: 3, ..Findings::default() });
        assert!(sound.is_sound());
        assert_eq!(
            sound.json().expect("JSON"),
            r#"{"orders":10,"completed":9,"failed":1,"lost":0,"duplicated_transitions":0,"repeated_bodies":3,"seconds":2.0,"steps_per_second":25.0}"#
        );
        let tables = sound.tables();
        assert!(tables.contains("12345") && tables.contains("killed") && tables.contains("repeated bodies"), "{tables}");
    }

    #[test]
    fn what_is_open_at_the_end_is_lost_and_a_fault() {
        let loss = Loss { order: "A-1".to_owned(), reason: "it is suspended".to_owned() };
        let lost = report(Findings { open: vec![loss], ..Findings::default() });
        assert_eq!(
            (lost.is_sound(), lost.summary.lost, lost.faults()),
            (false, 1, vec!["lost: order A-1: it is suspended".to_owned()])
        );
        let twice =
            report(Findings { duplicated_transitions: vec![("A-1".to_owned(), "ship".to_owned()); 23], ..Findings::default() });
        assert_eq!((twice.is_sound(), twice.summary.duplicated_transitions), (false, 23));
        assert_eq!(twice.faults().last().map(String::as_str), Some("  ... and 3 more"));
    }
}
