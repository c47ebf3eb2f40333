//! What is shown while a run is on: a bar for all and one for each node, and notes. All on standard error.

use std::collections::BTreeMap;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::progress::Progress;

/// The bars. Hidden when standard error is no terminal, or when there are to be none.
#[derive(Debug)]
pub(crate) struct Display {
    bars: MultiProgress,
    all: ProgressBar,
    nodes: BTreeMap<String, ProgressBar>,
}

impl Display {
    pub(crate) fn new(with_bars: bool) -> Self {
        let bars =
            MultiProgress::with_draw_target(if with_bars { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
        let all = bars.add(ProgressBar::new(0).with_prefix("all nodes").with_style(style("{pos}/{len} steps, {elapsed}")));
        Self { bars, all, nodes: BTreeMap::new() }
    }

    /// A line that stays.
    pub(crate) fn note(&self, line: &str) {
        if self.bars.is_hidden() {
            eprintln!("{line}");
        } else {
            // A terminal that is gone shows nothing any more.
            let _ = self.bars.println(line);
        }
    }

    /// A bar for a node that was started.
    pub(crate) fn node_started(&mut self, name: &str) {
        let length = self.all.length().unwrap_or_default();
        let bar = ProgressBar::new(length).with_prefix(name.to_owned()).with_style(style("{pos} steps, {msg}"));
        let bar = self.bars.add(bar);
        bar.set_message("started");
        self.nodes.insert(name.to_owned(), bar);
    }

    /// The bar stays as it is.
    pub(crate) fn node_ended(&mut self, name: &str, fate: &str) {
        if let Some(bar) = self.nodes.get(name).filter(|bar| !bar.is_finished()) {
            bar.abandon_with_message(fate.to_owned());
        }
    }

    pub(crate) fn show(&self, progress: &Progress) {
        self.all.set_length(progress.steps_to_do());
        self.all.set_position(progress.steps());
        for (name, bar) in self.nodes.iter().filter(|(_, bar)| !bar.is_finished()) {
            let node = progress.of_node(name);
            bar.set_length(progress.steps_to_do());
            bar.set_position(node.steps);
            bar.set_message(format!("{} shipped", node.shipped));
        }
    }

    /// Takes the bars away.
    pub(crate) fn end(&self) {
        let _ = self.bars.clear();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
    }
}

fn style(rest: &str) -> ProgressStyle {
    ProgressStyle::with_template(&format!("{{prefix:>9}} {{bar:40}} {rest}")).unwrap_or_else(|_| ProgressStyle::default_bar())
}
