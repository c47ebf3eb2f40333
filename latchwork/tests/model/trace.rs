//! What must hold of a run with branches beside each other: the rules, checked against what its bodies did and where each stood.

use super::{
    common::WorkflowStatus,
    engine::{Run, label},
    tree::{Node, Step, Tree, Undo, tick},
};
use latchwork::store::{PointerId, PointerRecord, PointerStatus};
use std::collections::{BTreeMap, HashMap, HashSet};

const COMPENSATION: u32 = u32::MAX - 1;

type Spot = (Option<PointerId>, String, u32, Option<u64>, u32, u32);

/// How often a node went away.
pub type Kills = usize;

pub struct Trace {
    spots: HashMap<Spot, PointerRecord>,
    /// Compensations by what they are of: the saga, and its attempt.
    undoing: HashMap<(PointerId, u32), Vec<PointerRecord>>,
    by_id: HashMap<PointerId, PointerRecord>,
    runs: HashMap<PointerId, Vec<Run>>,
    rounds: BTreeMap<String, i64>,
    checked: HashSet<PointerId>,
    kills: Kills,
}

/// Where the nodes of a block stand.
#[derive(Clone, Copy)]
struct At<'a> {
    parent: Option<&'a PointerRecord>,
    branch: u32,
    item: Option<u64>,
    round: u32,
    attempt: u32,
    /// Whether a saga is around it.
    in_saga: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Done,
    Fails(WorkflowStatus),
    /// It did not come to its end.
    Cut,
}

/// From when to when bodies ran.
type Span = Option<(usize, usize)>;

fn joined(a: Span, b: Span) -> Span {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

/// What is to be undone, in the order in which it was done.
enum Undoing {
    Nothing,
    Of { label: String, sequence: i64, id: PointerId },
    InOrder(Vec<Undoing>),
    Beside(Vec<Undoing>),
}

impl Undoing {
    fn all<'a>(&'a self, into: &mut Vec<(&'a str, i64, PointerId)>) {
        match self {
            Self::Nothing => {}
            Self::Of { label, sequence, id } => into.push((label, *sequence, *id)),
            Self::InOrder(all) | Self::Beside(all) => all.iter().for_each(|part| part.all(into)),
        }
    }
}

struct Part {
    end: End,
    undoing: Undoing,
    span: Span,
}

impl Trace {
    pub fn new(records: Vec<PointerRecord>, runs: Vec<Run>, kills: Kills) -> Result<Self, String> {
        let mut trace = Self {
            spots: HashMap::new(),
            undoing: HashMap::new(),
            by_id: HashMap::new(),
            runs: HashMap::new(),
            rounds: BTreeMap::new(),
            checked: HashSet::new(),
            kills,
        };
        let mut by_key = HashMap::new();
        for record in records {
            by_key.insert(record.id.to_string(), record.id);
            let place = record.place;
            let spot = (record.parent, record.step.to_string(), place.branch, place.item, place.round, place.attempt);
            if let Some(parent) = record.parent.filter(|_| place.branch == COMPENSATION) {
                trace.undoing.entry((parent, place.attempt)).or_default().push(record.clone());
            }
            trace.by_id.insert(record.id, record.clone());
            // What a for-each keeps of its collection is no pointer of the tree.
            if place.branch != u32::MAX && trace.spots.insert(spot, record).is_some() {
                return Err("two pointers stand at the same place".into());
            }
        }
        for run in runs {
            let pointer = run.key.rsplit_once('/').and_then(|(_, pointer)| by_key.get(pointer));
            // What ran on a node that went away before it stored anything of it is derived to the same key when it runs again.
            let pointer = pointer.ok_or_else(|| format!("`{}` ran, and the history does not know it", run.label))?;
            trace.runs.entry(*pointer).or_default().push(run);
        }
        Ok(trace)
    }

    pub fn check(mut self, tree: &Tree, status: WorkflowStatus) -> Result<Vec<String>, String> {
        let root = At { parent: None, branch: 0, item: None, round: 0, attempt: 0, in_saga: false };
        let part = self.block(&tree.0, root, &[])?;
        let expected = match part.end {
            End::Done => WorkflowStatus::Complete,
            End::Fails(status) => status,
            End::Cut => return Err("it did not come to its end".into()),
        };
        if status != expected {
            return Err(format!("it is {status}, and should be {expected}"));
        }
        let mut log = Vec::new();
        for (id, runs) in &self.runs {
            let record = &self.by_id[id];
            if record.place.branch == COMPENSATION && !self.checked.contains(id) {
                return Err(format!("`{}` ran, although nothing was to be undone by it", runs[0].label));
            }
            if runs.iter().any(|run| run.label != runs[0].label || run.key != runs[0].key) {
                return Err(format!("`{}` ran with several keys or items", record.step));
            }
            for attempt in 1..=2 {
                let same = runs.iter().filter(|run| run.attempt == attempt).count();
                if same > 1 + self.kills {
                    return Err(format!("`{}` ran {same} times at its try {attempt}", runs[0].label));
                }
            }
            if runs.last().is_some_and(|run| run.good) {
                log.push(runs[0].label.clone());
            }
        }
        log.sort();
        Ok(log)
    }

    fn block(&mut self, nodes: &[Node], at: At<'_>, items: &[i64]) -> Result<Part, String> {
        self.in_order(nodes.len(), |trace, index| trace.node(&nodes[index], at, items))
    }

    fn in_order(&mut self, count: usize, mut part: impl FnMut(&mut Self, usize) -> Result<Part, String>) -> Result<Part, String> {
        let (mut undoing, mut span, mut end) = (Vec::new(), None, End::Done);
        for index in 0..count {
            let part = part(self, index)?;
            if let (Some((_, before)), Some((after, _))) = (span, part.span)
                && after < before
            {
                return Err(format!("what comes as number {index} began before all that comes before it had ended"));
            }
            if end != End::Done && part.span.is_some() {
                return Err(format!("number {index} ran after something that has not come to its end"));
            }
            span = joined(span, part.span);
            undoing.push(part.undoing);
            if end == End::Done {
                end = part.end;
            }
        }
        Ok(Part { end, undoing: Undoing::InOrder(undoing), span })
    }

    fn beside(&mut self, count: usize, mut part: impl FnMut(&mut Self, usize) -> Result<Part, String>) -> Result<Part, String> {
        let (mut undoing, mut span, mut end) = (Vec::new(), None, End::Done);
        for index in 0..count {
            let part = part(self, index)?;
            span = joined(span, part.span);
            undoing.push(part.undoing);
            end = match (end, part.end) {
                (failed @ End::Fails(_), _) | (_, failed @ End::Fails(_)) => failed,
                (End::Cut, _) | (_, End::Cut) => End::Cut,
                (End::Done, End::Done) => End::Done,
            };
        }
        Ok(Part { end, undoing: Undoing::Beside(undoing), span })
    }

    fn record(&self, name: &str, at: At<'_>) -> Option<PointerRecord> {
        let spot = (at.parent.map(|parent| parent.id), name.to_owned(), at.branch, at.item, at.round, at.attempt);
        self.spots.get(&spot).cloned()
    }

    fn node(&mut self, node: &Node, at: At<'_>, items: &[i64]) -> Result<Part, String> {
        let cut = Part { end: End::Cut, undoing: Undoing::Nothing, span: None };
        let id = match node {
            Node::Step(step) => return self.step(&format!("s{}", step.id), step, at, items),
            Node::Saga { id, .. } | Node::Each { id, .. } | Node::Parallel { id, .. } | Node::When { id, .. } => id,
            Node::While { id, .. } | Node::First { id, .. } | Node::Group { id, .. } => id,
        };
        let name = format!("n{id}");
        let Some(record) = self.record(&name, at) else { return Ok(cut) };
        let attempt = record.place.attempt;
        let below = At { parent: Some(&record), branch: 0, item: None, round: 0, attempt, in_saga: at.in_saga };
        match node {
            Node::Saga { undo, tries, goes_on, body, .. } => self.saga(&record, *undo, *tries, *goes_on, body, below, items),
            Node::Each { items: count, at_once, body, .. } => {
                let count = usize::try_from(*count).expect("few");
                let part = |trace: &mut Self, index: usize| {
                    let item = u64::try_from(index).expect("few");
                    let value = i64::try_from(index).expect("few") + 1;
                    trace.block(body, At { item: Some(item), ..below }, &[items, &[value]].concat())
                };
                if *at_once { self.beside(count, part) } else { self.in_order(count, part) }
            }
            Node::Parallel { branches, .. } => self.beside(branches.len(), |trace, index| {
                trace.block(&branches[index], At { branch: u32::try_from(index).expect("few"), ..below }, items)
            }),
            Node::When { holds: true, then, .. } => self.block(then, below, items),
            Node::When { otherwise, .. } => {
                self.block(otherwise.as_deref().unwrap_or_default(), At { branch: 1, ..below }, items)
            }
            Node::While { rounds, body, .. } => {
                let loop_name = label(&name, items);
                let left = rounds - self.rounds.get(&loop_name).copied().unwrap_or(0);
                self.in_order(usize::try_from(left).unwrap_or(0), |trace, round| {
                    let at = At { round: u32::try_from(round).expect("few"), ..below };
                    trace.in_order(2, |trace, part| match part {
                        0 => trace.block(body, at, items),
                        _ => {
                            let part = trace.step(&format!("tick {name}"), &tick(0), at, items)?;
                            if part.end == End::Done {
                                *trace.rounds.entry(loop_name.clone()).or_default() += 1;
                            }
                            Ok(part)
                        }
                    })
                })
            }
            Node::First { at, body, .. } => self.block(body, At { branch: u32::try_from(*at).expect("few"), ..below }, items),
            Node::Group { body, .. } => self.block(body, below, items),
            Node::Step(_) => Ok(cut),
        }
    }

    fn span(&self, id: PointerId) -> Span {
        let runs = self.runs.get(&id)?;
        let spans = runs.iter().map(|run| Some((run.began, run.ended.unwrap_or(run.began))));
        spans.fold(None, joined)
    }

    fn step(&mut self, name: &str, step: &Step, at: At<'_>, items: &[i64]) -> Result<Part, String> {
        let cut = Part { end: End::Cut, undoing: Undoing::Nothing, span: None };
        let Some(record) = self.record(name, at) else { return Ok(cut) };
        let mut span = self.span(record.id);
        let Some(last) = self.runs.get(&record.id).and_then(|runs| runs.last()).cloned() else { return Ok(cut) };
        if last.label != label(name, items) {
            return Err(format!("`{}` ran in place of `{}`", last.label, label(name, items)));
        }
        if last.ended.is_none() {
            return Err(format!("`{}` did not come to its end", last.label));
        }
        let has_failed = !last.good && last.attempt >= step.tries;
        let end = match (last.good || (has_failed && step.goes_on), has_failed, at.in_saga, step.undo) {
            (true, ..) => End::Done,
            (_, false, ..) => End::Cut,
            (_, _, false, Undo::Yes | Undo::Flaky) => {
                span = joined(span, self.undone(&record, &[(&last.label, None)], at.attempt)?);
                End::Done
            }
            _ => End::Fails(WorkflowStatus::Suspended),
        };
        let undoing = match step.undo {
            Undo::No => Undoing::Nothing,
            _ => Undoing::Of { label: last.label, sequence: record.sequence, id: record.id },
        };
        Ok(Part { end, undoing, span })
    }

    #[allow(clippy::too_many_arguments, reason = "they are what a saga is")]
    fn saga(
        &mut self,
        record: &PointerRecord,
        undo: Undo,
        tries: u32,
        goes_on: bool,
        body: &[Node],
        below: At<'_>,
        items: &[i64],
    ) -> Result<Part, String> {
        let own_label = label(&record.step, items);
        let (mut span, mut undoing, mut end) = (None, Undoing::Nothing, End::Cut);
        for attempt in 0..tries {
            let part = self.block(body, At { attempt, in_saga: true, ..below }, items)?;
            if let (Some((_, before)), Some((after, _))) = (span, part.span)
                && after < before
            {
                return Err(format!("attempt {attempt} of `{own_label}` began before the one before it was undone"));
            }
            span = joined(span, part.span);
            let is_last = attempt + 1 == tries;
            let own = Undoing::Of { label: own_label.clone(), sequence: record.sequence, id: record.id };
            let own = if undo == Undo::No { Undoing::Nothing } else { own };
            match part.end {
                End::Done => return Ok(Part { end: End::Done, undoing: Undoing::InOrder(vec![own, part.undoing]), span }),
                // The saga around it undoes what it had come to, and itself, unless it was between two attempts.
                End::Cut => {
                    let mut spots = self.spots.keys();
                    let has_begun = spots.any(|spot| spot.0 == Some(record.id) && spot.2 != COMPENSATION && spot.5 == attempt);
                    let own = if has_begun { own } else { Undoing::Nothing };
                    return Ok(Part { end: End::Cut, undoing: Undoing::InOrder(vec![own, part.undoing]), span });
                }
                End::Fails(_) => {
                    // Left to the saga around it, which had failed before.
                    if below.in_saga && !self.undoing.contains_key(&(record.id, attempt)) {
                        let mut all = Vec::new();
                        part.undoing.all(&mut all);
                        if undo != Undo::No || !all.is_empty() {
                            return Ok(Part { end: End::Cut, undoing: Undoing::InOrder(vec![own, part.undoing]), span });
                        }
                    }
                    let undone = self.undo_saga(record, attempt, &part, &own_label, undo != Undo::No)?;
                    span = joined(span, undone);
                    (undoing, end) = match (is_last, goes_on) {
                        (false, _) => (Undoing::Nothing, End::Cut),
                        (true, true) => (Undoing::Nothing, End::Done),
                        (true, false) => (Undoing::Nothing, End::Fails(WorkflowStatus::Terminated)),
                    };
                }
            }
        }
        Ok(Part { end, undoing, span })
    }

    /// Checks that all that an attempt of a saga has done was undone, and nothing else, in the right order.
    fn undo_saga(&mut self, saga: &PointerRecord, attempt: u32, part: &Part, own: &str, has_own: bool) -> Result<Span, String> {
        let mut all = Vec::new();
        part.undoing.all(&mut all);
        let mut wanted: Vec<_> = all.iter().map(|(label, sequence, _)| (*label, u64::try_from(*sequence).ok())).collect();
        if has_own {
            wanted.push((own, None));
        }
        let undone = self.undone(saga, &wanted, attempt)?;
        if let (Some((_, last)), Some((first, _))) = (part.span, undone)
            && first < last
        {
            return Err(format!("attempt {attempt} of `{own}` was undone before all in it had ended"));
        }
        for (label, _, id) in &all {
            if self.by_id[id].status != PointerStatus::Compensated {
                return Err(format!("`{label}` was undone, and is stored as {}", self.by_id[id].status));
            }
        }
        let mut spans = HashMap::new();
        let mut before: Span = None;
        let mut records = self.undoing.get(&(saga.id, attempt)).cloned().unwrap_or_default();
        records.sort_by_key(|record| self.span(record.id).map(|span| span.0));
        for record in records {
            let span = self.span(record.id);
            if let (Some((_, end)), Some((begin, _))) = (before, span)
                && begin < end
            {
                return Err(format!("`{}` ran beside another compensation", record.step));
            }
            before = span;
            match record.place.item {
                Some(item) => _ = spans.insert(item, span),
                None if span.map(|span| span.1) != undone.map(|undone| undone.1) => {
                    return Err(format!("`{}` was not the last", record.step));
                }
                None => {}
            }
        }
        reversed(&part.undoing, &spans)?;
        Ok(undone)
    }

    /// Checks that exactly these were undone by this pointer, each once.
    fn undone(&mut self, by: &PointerRecord, wanted: &[(&str, Option<u64>)], attempt: u32) -> Result<Span, String> {
        let records = self.undoing.get(&(by.id, attempt)).cloned().unwrap_or_default();
        let mut span = None;
        for (label, item) in wanted {
            let mut of_it = records.iter().filter(|record| record.place.item == *item);
            let (Some(record), None) = (of_it.next(), of_it.next()) else {
                return Err(format!("`{label}` was not undone, in attempt {attempt} of `{}`", by.step));
            };
            self.checked.insert(record.id);
            let runs = self.runs.get(&record.id).map_or(&[][..], Vec::as_slice);
            let good = runs.iter().filter(|run| run.good).count();
            if good == 0 || good > 1 + self.kills || runs.iter().any(|run| run.label != format!("undo {label}")) {
                return Err(format!("`{label}` was undone {good} times, by {runs:?}"));
            }
            span = joined(span, self.span(record.id));
        }
        match records.iter().find(|record| !self.checked.contains(&record.id)) {
            Some(record) => Err(format!("`{}` was opened in attempt {attempt} of `{}` for nothing", record.step, by.step)),
            None => Ok(span),
        }
    }
}

/// Checks that what was done in an order is undone in the reverse one.
fn reversed(undoing: &Undoing, spans: &HashMap<u64, Span>) -> Result<Span, String> {
    match undoing {
        Undoing::Nothing => Ok(None),
        Undoing::Of { sequence, .. } => {
            Ok(u64::try_from(*sequence).ok().and_then(|sequence| spans.get(&sequence)).copied().flatten())
        }
        Undoing::Beside(all) => all.iter().try_fold(None, |span, part| Ok(joined(span, reversed(part, spans)?))),
        Undoing::InOrder(all) => {
            let mut span: Span = None;
            for part in all.iter().rev() {
                let next = reversed(part, spans)?;
                if let (Some((_, before)), Some((after, _))) = (span, next)
                    && after < before
                {
                    let mut labels = Vec::new();
                    part.all(&mut labels);
                    return Err(format!("{labels:?} was undone before what came after it"));
                }
                span = joined(span, next);
            }
            Ok(span)
        }
    }
}
