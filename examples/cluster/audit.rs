//! The audit: what the ledger says was done, compared with what the store says was done.
//!
//! The ledger knows of each *effect* the order, the step and the idempotency key; the store knows of each order its instance, and of each
//! instance its pointers, whose ids are the second half of the keys. From the two follows, for the orders of this run:
//!
//! * **completed**, **failed**: the instance is Complete, or Terminated.
//! * **lost**: an order that was accepted and is not where it should be. It has no instance; or its instance is neither Complete nor
//!   Terminated although the run has ended; or the store says that a step with an effect is done, and the ledger does not know
//!   of it; or the instance is Complete without one of these steps. Each such order counts once.
//!
//! And for the whole ledger, earlier runs included:
//!
//! * **duplicated transitions**: effects of one step of one order under more than one idempotency key, each key beyond the first. A
//!   workflow that was started twice for one order, or went through a step twice, shows up here. There must be none.
//! * **repeated bodies**: effects under the same idempotency key, each beyond the first. These are allowed when a node was killed
//!   between a step's effect and the commit of its completion, and such a service as knows the key lets them pass without effect.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use latchwork::{
    HostError, Workflow, WorkflowHost,
    store::{InstanceHeader, InstanceQuery, PointerRecord, PointerStatus, WorkflowStatus},
};

use crate::{
    fulfilment::{EFFECTS, FulfilOrder},
    ledger::Effect,
    patience::patiently,
};

/// Instances whose histories are read at the same time.
const AT_ONCE: usize = 32;
/// Rows of a page.
const PAGE: usize = 1_000;

/// What the audit found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) completed: u64,
    /// Those that failed, each with the reason.
    pub(crate) failed: Vec<(String, String)>,
    /// Those that have not ended: lost, unless the run was interrupted.
    pub(crate) open: Vec<Loss>,
    /// What is lost in any case.
    pub(crate) lost: Vec<Loss>,
    /// Which (order, step) was done under more than one key, each key beyond the first.
    pub(crate) duplicated_transitions: Vec<(String, String)>,
    pub(crate) repeated_bodies: u64,
}

/// An order that is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) order: String,
    pub(crate) reason: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}: {}", self.order, self.reason)
    }
}

/// What the store says of an order.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) status: WorkflowStatus,
    pub(crate) reason: Option<String>,
    /// (step, idempotency key) of the steps that are done. Read of instances that have ended only.
    pub(crate) done: Vec<(String, String)>,
}

/// Compares the ledger with the store.
pub(crate) async fn audit(host: &WorkflowHost, orders: &[String], ledger: &[Effect]) -> Result<Findings> {
    let accounts = accounts(host, orders).await.context("the store could not be asked for the audit")?;
    Ok(compare(orders, &accounts, ledger))
}

/// What the store says of these orders, by their numbers.
async fn accounts(host: &WorkflowHost, orders: &[String]) -> Result<HashMap<String, Account>, HostError> {
    let wanted: HashSet<&str> = orders.iter().map(String::as_str).collect();
    let mut query = InstanceQuery::new().with_definition(FulfilOrder::ID).with_limit(PAGE);
    let mut accounts = HashMap::new();
    loop {
        let page = patiently(|| host.find(&query)).await?;
        if let Some(last) = page.items.last() {
            query = query.after(last.header.id.clone());
        }
        let headers = page.items.into_iter().map(|summary| summary.header);
        let ours =
            headers.filter_map(|header| Some((header.business_key.clone()?, header)).filter(|(key, _)| wanted.contains(&**key)));
        let read = ours.map(|(order, header)| async move { account(host, header).await.map(|account| (order, account)) });
        accounts.extend(stream::iter(read).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?);
        if !page.more {
            return Ok(accounts);
        }
    }
}

async fn account(host: &WorkflowHost, header: InstanceHeader) -> Result<Account, HostError> {
    let mut account = Account { status: header.status, reason: header.reason, done: Vec::new() };
    if !header.status.is_terminal() {
        return Ok(account);
    }
    let instance = host.instance(header.id.clone());
    let mut after = 0;
    loop {
        let page = patiently(|| instance.history(after, PAGE)).await?;
        after = page.items.last().map_or(after, |last| last.sequence);
        let done = page.items.iter().filter(|pointer| has_effect(pointer));
        account.done.extend(done.map(|pointer| (pointer.step.to_string(), format!("{}/{}", header.id, pointer.id))));
        if !page.more {
            return Ok(account);
        }
    }
}

fn has_effect(pointer: &PointerRecord) -> bool {
    pointer.status == PointerStatus::Complete && EFFECTS.contains(&&*pointer.step)
}

fn compare(orders: &[String], accounts: &HashMap<String, Account>, ledger: &[Effect]) -> Findings {
    let mut findings = Findings::default();

    let mut lines_by_key: HashMap<&str, u64> = HashMap::new();
    let mut keys_by_step: BTreeMap<(&str, &str), HashSet<&str>> = BTreeMap::new();
    for Effect { order, step, key, .. } in ledger {
        *lines_by_key.entry(key).or_default() += 1;
        keys_by_step.entry((order, step)).or_default().insert(key);
    }
    findings.repeated_bodies = lines_by_key.values().map(|lines| lines - 1).sum();
    for ((order, step), keys) in keys_by_step {
        findings.duplicated_transitions.extend((1..keys.len()).map(|_| (order.to_owned(), step.to_owned())));
    }

    for order in orders {
        let loss = |reason: String| Loss { order: order.clone(), reason };
        let Some(account) = accounts.get(order) else {
            findings.open.push(loss("it was not started".to_owned()));
            continue;
        };
        match account.status {
            WorkflowStatus::Complete => findings.completed += 1,
            WorkflowStatus::Terminated => {
                findings.failed.push((order.clone(), account.reason.clone().unwrap_or_else(|| "no reason was given".to_owned())));
            }
            status @ (WorkflowStatus::Runnable | WorkflowStatus::Suspended) => {
                let why = account.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                findings.open.push(loss(format!("it is {status}{why}")));
                continue;
            }
        }
        let unknown = account.done.iter().find(|(_, key)| !lines_by_key.contains_key(key.as_str()));
        let is_done = |step: &&str| account.done.iter().any(|(done, _)| done == step);
        let missing = EFFECTS.iter().find(|step| account.status == WorkflowStatus::Complete && !is_done(step));
        if let Some((step, _)) = unknown {
            findings.lost.push(loss(format!("the store says that `{step}` is done, the ledger does not know of it")));
        } else if let Some(step) = missing {
            findings.lost.push(loss(format!("it is complete, and `{step}` was not done")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fulfilment::{CHARGE, SHIP, VALIDATE};
    use latchwork::core::clock::Timestamp;

    fn key(order: &str, step: &str) -> String {
        format!("instance of {order}/{step}")
    }

    fn effect(order: &str, step: &str) -> Effect {
        let (order, step) = (order.to_owned(), step.to_owned());
        Effect { key: key(&order, &step), order, step, node: "node-1".to_owned(), time: Timestamp::UNIX_EPOCH }
    }

    /// The books of three orders as they should be: two complete, and one refused.
    fn sound() -> (Vec<String>, HashMap<String, Account>, Vec<Effect>) {
        let orders = ["A-1", "A-2", "A-3"].map(str::to_owned).to_vec();
        let complete = |order: &str| {
            let done = EFFECTS.map(|step| (step.to_owned(), key(order, step))).to_vec();
            (order.to_owned(), Account { status: WorkflowStatus::Complete, reason: None, done })
        };
        let refused =
            Account { status: WorkflowStatus::Terminated, reason: Some("no such article".to_owned()), done: Vec::new() };
        let accounts = HashMap::from([complete("A-1"), complete("A-2"), ("A-3".to_owned(), refused)]);
        let ledger = ["A-1", "A-2"].iter().flat_map(|order| EFFECTS.map(|step| effect(order, step))).collect();
        (orders, accounts, ledger)
    }

    fn account<'a>(accounts: &'a mut HashMap<String, Account>, order: &str) -> &'a mut Account {
        accounts.get_mut(order).expect("an account")
    }

    fn sound_findings() -> Findings {
        Findings { completed: 2, failed: vec![("A-3".to_owned(), "no such article".to_owned())], ..Findings::default() }
    }

    #[test]
    fn sound_books_have_nothing_lost_and_nothing_twice() {
        let (orders, accounts, ledger) = sound();
        assert_eq!(compare(&orders, &accounts, &ledger), sound_findings());
    }

    #[test]
    fn an_effect_under_a_second_key_is_a_duplicated_transition_and_under_the_same_key_a_repeated_body() {
        let (orders, accounts, mut ledger) = sound();
        ledger.push(effect("A-1", CHARGE));
        ledger.push(effect("A-1", CHARGE));
        ledger.push(Effect { key: key("A-1 again", SHIP), ..effect("A-1", SHIP) });
        ledger.push(Effect { key: key("B-7 again", SHIP), ..effect("B-7", SHIP) });
        ledger.push(effect("B-7", SHIP));
        let twice = |order: &str| (order.to_owned(), SHIP.to_owned());
        let duplicated_transitions = vec![twice("A-1"), twice("B-7")];
        assert_eq!(
            compare(&orders, &accounts, &ledger),
            Findings { duplicated_transitions, repeated_bodies: 2, ..sound_findings() }
        );
    }

    #[test]
    fn a_step_that_only_one_side_knows_is_a_lost_order() {
        let (orders, mut accounts, mut ledger) = sound();
        ledger.retain(|effect| (&*effect.order, &*effect.step) != ("A-1", CHARGE));
        account(&mut accounts, "A-2").done.retain(|(step, _)| step != SHIP);
        account(&mut accounts, "A-3").done.push((VALIDATE.to_owned(), key("A-3", VALIDATE)));
        let lost: Vec<_> = compare(&orders, &accounts, &ledger).lost.iter().map(ToString::to_string).collect();
        assert_eq!(
            lost,
            [
                "order A-1: the store says that `charge` is done, the ledger does not know of it",
                "order A-2: it is complete, and `ship` was not done",
                "order A-3: the store says that `validate` is done, the ledger does not know of it",
            ]
        );
    }

    #[test]
    fn an_order_that_was_not_started_or_has_not_ended_is_open() {
        let (orders, mut accounts, ledger) = sound();
        accounts.remove("A-1");
        account(&mut accounts, "A-2").status = WorkflowStatus::Suspended;
        account(&mut accounts, "A-2").reason = Some("step `ship` failed".to_owned());
        let findings = compare(&orders, &accounts, &ledger);
        let open: Vec<_> = findings.open.iter().map(ToString::to_string).collect();
        assert_eq!(open, ["order A-1: it was not started", "order A-2: it is suspended: step `ship` failed"]);
        assert_eq!((findings.completed, findings.lost), (0, Vec::new()));
    }
}
