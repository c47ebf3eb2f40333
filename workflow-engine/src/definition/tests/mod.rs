//! What makes a definition unsound, and what a sound one holds.

mod jumps;
mod shapes;

use super::*;
use crate::{Retry, StepBody, StepContext, StepResult, Workflow, WorkflowBuilder, define};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Order {
    id: String,
    lines: Vec<String>,
    paid: bool,
}

#[derive(Default)]
struct Check;

impl StepBody for Check {
    async fn run(&mut self, _cx: &StepContext) -> StepResult {
        Ok(crate::ExecutionResult::Next)
    }
}

async fn work(_order: &Order, _cx: &StepContext) -> StepResult<()> {
    Ok(())
}

async fn line_work(_seen: (&Order, &String), _cx: &StepContext) -> StepResult<()> {
    Ok(())
}

struct Flow<F>(F);

impl<F: Fn(&mut WorkflowBuilder<Order>) + Send + Sync + 'static> Workflow for Flow<F> {
    type Data = Order;
    const ID: &'static str = "order";
    const VERSION: u32 = 3;

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        (self.0)(flow);
    }
}

fn sound(describe: impl Fn(&mut WorkflowBuilder<Order>) + Send + Sync + 'static) -> Definition {
    define(&Flow(describe)).expect("a sound definition")
}

/// Each problem as its step and what is wrong with it.
fn problems(describe: impl Fn(&mut WorkflowBuilder<Order>) + Send + Sync + 'static) -> Vec<(String, ProblemKind)> {
    let error = define(&Flow(describe)).expect_err("a definition with problems");
    error.problems().iter().map(|found| (found.step().unwrap_or("-").to_owned(), found.kind().clone())).collect()
}

fn names(definition: &Definition, block: BlockIndex) -> Vec<&str> {
    definition.block(block).nodes.iter().map(|node| &*definition.node(*node).name).collect()
}

fn one(step: &str, kind: ProblemKind) -> Vec<(String, ProblemKind)> {
    vec![(step.to_owned(), kind)]
}

#[test]
fn definitions_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Definition>();
    shared::<DefinitionError>();
}

#[test]
fn an_error_names_workflow_step_file_line_and_every_problem_in_the_order_of_the_source() {
    let line = line!() + 2;
    let error = define(&Flow(|flow: &mut WorkflowBuilder<Order>| {
        flow.run("pack", work);
        flow.when("paid?", |order| order.paid, |then| then.run("pack", work));
        flow.parallel("both", |_| ());
        flow.go_to("ship");
    }))
    .expect_err("three problems");
    let file = file!();
    let place = |line| format!("{file}:{line}");
    let expected = [
        format!(
            "workflow `order` version 3, step `pack` ({}): the step at {} has the same name; \
             names are unique in a workflow, as running instances are tied to them",
            place(line + 1),
            place(line)
        ),
        format!("workflow `order` version 3, step `both` ({}): it has no branches", place(line + 2)),
        format!("workflow `order` version 3, step `go to ship` ({}): there is no step `ship` to go to", place(line + 3)),
    ];
    assert_eq!(error.to_string().lines().collect::<Vec<_>>(), expected);
    assert_eq!(error.problems()[0].location().map(|at| (at.file(), at.line())), Some((file, line + 1)));
    assert_eq!((error.problems()[0].workflow(), error.problems()[0].version()), ("order", 3));
    assert!(!error.is_retryable());
}

#[test]
fn a_workflow_needs_an_id_a_version_and_a_step() {
    struct Nothing;
    impl Workflow for Nothing {
        type Data = Order;
        const ID: &'static str = " order";
        const VERSION: u32 = 0;
        fn build(&self, _: &mut WorkflowBuilder<Order>) {}
    }
    let error = define(&Nothing).expect_err("three problems");
    let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "workflow ` order` version 0: workflow id \" order\" is refused: it has white space at an end",
            "workflow ` order` version 0: versions begin with 1; set `const VERSION`",
            "workflow ` order` version 0: it has no steps; `build` must add at least one",
        ]
    );
    assert!(error.problems().iter().all(|problem| problem.location().is_none() && problem.step().is_none()));
}

#[test]
fn names_of_steps_branches_and_events_keep_the_rules() {
    let found = problems(|flow| {
        flow.run("", work);
        flow.parallel("both", |all| all.branch("a\n", |b| b.run("a", work)));
        flow.wait_for("packed ", |order| order.id.clone()).named("packed");
        flow.wait_for("paid", |order| order.id.clone()).named("\t");
    });
    let rules: Vec<_> = found.iter().map(|(step, kind)| (step.as_str(), kind.to_string())).collect();
    assert_eq!(
        rules,
        [
            ("", "step name \"\" is refused: it is empty".to_owned()),
            ("both", "branch name \"a\\n\" is refused: it has a control character".to_owned()),
            ("packed", "event name \"packed \" is refused: it has white space at an end".to_owned()),
            ("\t", "step name \"\\t\" is refused: it has a control character".to_owned()),
        ]
    );
}

#[test]
fn branch_names_are_unique_in_their_parallel_only() {
    let found = problems(|flow| {
        flow.parallel("both", |all| {
            all.branch("x", |b| b.run("a", work));
            all.branch("x", |b| b.run("b", work));
        });
        flow.parallel("again", |all| all.branch("x", |b| b.run("c", work)));
    });
    assert_eq!(found, one("both", ProblemKind::DuplicateBranch { branch: "x".into() }));
}

#[test]
fn a_loop_that_cannot_change_its_test_is_found() {
    let found = problems(|flow| {
        flow.repeat_while("empty", |order| order.paid, |_| ());
        flow.repeat_while("pure", |order| order.paid, |body| body.when("x", |order| order.paid, |then| then.end()));
        flow.repeat_while("deep", |order| order.paid, |body| body.when("y", |order| order.paid, |then| then.run("z", work)));
    });
    let pure = |step: &str| (step.to_owned(), ProblemKind::LoopWithoutSteps);
    assert_eq!(found, [pure("empty"), pure("pure")]);
}

#[test]
fn empty_branches_are_refused_where_they_are_forgotten_and_allowed_where_they_say_do_nothing() {
    let found = problems(|flow| {
        flow.parallel("both", |all| {
            all.branch("one", |b| b.run("a", work));
            all.branch("two", |_| ());
        });
        flow.for_each("lines", |order| order.lines.clone(), |_| ());
        flow.step::<Check>("check").branches(|_| ());
        flow.decide("size", |order| order.lines.len());
    });
    let lines: Vec<_> = found.iter().map(|(step, kind)| format!("{step}: {kind}")).collect();
    assert_eq!(
        lines,
        [
            "both: one of its branches has no steps",
            "lines: its body has no steps",
            "check: the branch for its values has no steps",
            "size: it has no cases",
        ]
    );
    sound(|flow| {
        flow.decide("size", |order| order.lines.len()).case(0, |_| ()).otherwise(|_| ());
        flow.when("paid?", |order| order.paid, |_| ());
        flow.step::<Check>("check").outcome("fine", |_| ());
        flow.wait_for("x", |order| order.id.clone()).timeout(Duration::ZERO).on_timeout(|_| ());
    });
}

#[test]
fn what_can_be_said_once_is_not_said_twice() {
    let found = problems(|flow| {
        flow.step::<Check>("check").outcome("a", |b| b.run("x", work)).outcome("a", |b| b.run("y", work));
        flow.step::<Check>("check again").outcome(std::f64::consts::PI, |_| ()).outcome(std::f64::consts::PI, |_| ());
        flow.run("run", work).output(|(), order| order.paid = true).output(|(), order| order.paid = false);
        flow.wait_for("e", |order| order.id.clone())
            .timeout(Duration::ZERO)
            .on_timeout(|late| late.end())
            .on_timeout(|late| late.end());
        flow.wait_for("f", |order| order.id.clone()).on_timeout(|late| late.end());
    });
    assert_eq!(
        found,
        [
            ("check".to_owned(), ProblemKind::OutcomeTwice { value: "\"a\"".into() }),
            ("check again".to_owned(), ProblemKind::OutcomeTwice { value: "3.141592653589793".into() }),
            ("run".to_owned(), ProblemKind::Twice { call: "output" }),
            ("wait for e".to_owned(), ProblemKind::Twice { call: "on_timeout" }),
            ("wait for f".to_owned(), ProblemKind::NoTimeout),
        ]
    );
}

#[test]
fn an_outcome_that_is_no_json_is_refused() {
    let found = problems(|flow| {
        flow.step::<Check>("check").outcome(std::collections::HashMap::from([((1, 2), 3)]), |_| ());
    });
    assert_eq!(found, one("check", ProblemKind::BadOutcome { reason: "key must be a string".into() }));
}

#[test]
fn derived_names_stay_when_other_blocks_change() {
    let definition = |more: bool| {
        sound(move |flow| {
            if more {
                flow.when("new?", |order| order.paid, |then| then.wait_for("packed", |order| order.id.clone()));
            }
            flow.wait_for("packed", |order| order.id.clone());
            flow.wait_for("packed", |order| order.id.clone());
            flow.when("paid?", |order| order.paid, |then| then.end()).otherwise(|other| {
                other.wait_for("packed", |order| order.id.clone()).timeout(Duration::ZERO).on_timeout(|late| late.end());
            });
            flow.wait_for("packed", |order| order.id.clone()).named("packed at last");
        })
    };
    let (old, new) = (definition(false), definition(true));
    for name in [
        "wait for packed",
        "wait for packed (2)",
        "end in paid?/1",
        "wait for packed in paid?/2",
        "end in wait for packed in paid?/2/1",
        "packed at last",
    ] {
        assert!(old.by_name.contains_key(name), "{name}: {}", old.shape());
        assert!(new.by_name.contains_key(name), "{name}: {}", new.shape());
    }
    assert_eq!((old.nodes.len(), new.nodes.len()), (7, 9));
}

#[test]
fn derived_names_avoid_those_of_the_user_and_are_never_too_long() {
    let event = "e".repeat(200);
    let definition = sound(move |flow| {
        flow.run("wait for x", work);
        flow.wait_for("x", |order| order.id.clone());
        flow.wait_for(&event, |order| order.id.clone());
        flow.wait_for(&format!("{}f", &event[1..]), |order| order.id.clone());
    });
    let names = names(&definition, BlockIndex::ROOT);
    assert_eq!(names[..2], ["wait for x", "wait for x (2)"]);
    assert!(names[2..].iter().all(|name| name.len() == 200 && name.starts_with("wait for eee")), "{names:?}");
    assert_ne!(names[2], names[3]);
}

#[test]
fn services_that_steps_need_and_the_default_policy_are_kept() {
    let definition = sound(|flow| {
        flow.default_error_policy(Retry::never());
        flow.step::<Check>("check").needs::<String>().on_error(Retry::fixed(Duration::from_secs(2))).replayable();
        flow.run("run", work).needs::<u8>();
    });
    let needs: Vec<_> = definition.needs.iter().map(|(step, service, name)| (&**step, *service, *name)).collect();
    assert_eq!(needs, [("check", TypeId::of::<String>(), "alloc::string::String"), ("run", TypeId::of::<u8>(), "u8")]);
    assert_eq!(definition.retry, Some(Retry::never()));
    let NodeKind::Step(step) = &definition.node(definition.by_name["check"]).kind else { panic!("a step") };
    assert_eq!(step.retry, Some(Retry::fixed(Duration::from_secs(2))));
    assert_eq!(step.durability, Some(crate::Durability::Replayable));
}

/// Every kind of step, nested five deep.
fn big(flow: &mut WorkflowBuilder<Order>) {
    flow.step::<Check>("check")
        .outcome("good", |good| good.run("note", work))
        .outcome("bad", |bad| bad.go_to("last"))
        .branches(|each| each.run("value", async |(order, value), _cx| Ok(order.lines.len() + value.to_string().len())));
    flow.parallel("both", |all| {
        all.branch("one", |b| {
            b.for_each(
                "lines",
                |order| order.lines.clone(),
                |each| {
                    each.repeat_while(
                        "while",
                        |(order, _line)| order.paid,
                        |body| {
                            body.decide("which", |(_order, line)| line.clone())
                                .case("a", |a| {
                                    a.for_each(
                                        "bytes",
                                        |(_, line)| line.clone().into_bytes(),
                                        |inner| {
                                            inner.run("byte", async |((order, line), byte), _cx| {
                                                Ok(order.id.len() + line.len() + usize::from(*byte))
                                            });
                                        },
                                    )
                                    .at_most(3)
                                })
                                .otherwise(|other| other.delay_by("pause", |(_, line)| Duration::from_secs(line.len() as u64)));
                        },
                    );
                },
            )
            .sequential();
        });
        all.branch("two", |b| b.wait_for("packed", |order| order.id.clone()).named("packed").timeout(Duration::from_secs(9)));
    });
    flow.run("last", work);
    flow.end();
}

#[test]
fn every_node_knows_its_place_and_every_block_its_owner() {
    let definition = sound(big);
    assert_eq!(names(&definition, BlockIndex::ROOT), ["check", "both", "last", "end"]);
    assert_eq!(definition.block(BlockIndex::ROOT).owner, None);
    for (index, node) in definition.nodes.iter().enumerate() {
        assert_eq!(definition.block(node.block).nodes[node.position], NodeIndex(index), "{}", node.name);
        assert_eq!(definition.by_name[&node.name], NodeIndex(index));
        for (number, branch) in node.kind.branches().into_iter().enumerate() {
            assert_eq!(definition.block(branch).owner, Some((NodeIndex(index), number as u32)), "{}", node.name);
        }
    }
    let branches = |name: &str| -> Vec<_> {
        definition.node(definition.by_name[name]).kind.branches().into_iter().map(|block| names(&definition, block)).collect()
    };
    assert_eq!(branches("check"), [vec!["note"], vec!["go to last in check/2"], vec!["value"]]);
    assert_eq!(branches("both"), [["lines"], ["packed"]]);
    assert_eq!(branches("which"), [["bytes"], ["pause"]]);
    let window = |name: &str| match &definition.node(definition.by_name[name]).kind {
        NodeKind::ForEach { window, .. } => *window,
        other => panic!("{other:?}"),
    };
    assert_eq!((window("lines"), window("bytes")), (1, 3));
}
