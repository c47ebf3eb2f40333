//! Where a go-to may lead, and what no way leads to.

use super::*;

#[test]
fn a_jump_may_go_to_its_own_block_and_to_those_around_it() {
    let definition = sound(|flow| {
        flow.run("begin", work);
        flow.when(
            "paid?",
            |order| order.paid,
            |then| {
                then.run("first", work);
                then.when("again?", |order| order.paid, |again| again.go_to("first")).otherwise(|other| other.go_to("begin"));
            },
        );
        flow.repeat_while(
            "while open",
            |order| order.paid,
            |body| {
                body.run("look", work);
                body.when("done?", |order| order.paid, |done| done.go_to("ship"));
            },
        );
        flow.wait_for("packed", |order| order.id.clone())
            .timeout(Duration::from_secs(1))
            .on_timeout(|late| late.go_to("wait for packed"));
        flow.run("ship", work);
    });
    let target = |name: &str| match &definition.node(definition.by_name[name]).kind {
        NodeKind::GoTo { target: Target::Node(node) } => definition.node(*node).name.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(target("go to first in again?/1"), "first");
    assert_eq!(target("go to begin in again?/2"), "begin");
    assert_eq!(target("go to ship in done?/1"), "ship");
    assert_eq!(target("go to wait for packed in wait for packed/1"), "wait for packed");
}

#[test]
fn a_jump_cannot_lead_into_a_branch() {
    let found = problems(|flow| {
        flow.when("paid?", |order| order.paid, |then| then.run("ship", work)).otherwise(|other| other.go_to("ship"));
        flow.run("end", work);
    });
    let kind = ProblemKind::TargetInBranch { target: "ship".into(), owner: "paid?".into() };
    assert!(kind.to_string().contains("go to `paid?`"));
    assert_eq!(found, one("go to ship in paid?/2", kind));
}

#[test]
fn a_jump_cannot_leave_what_runs_beside_others() {
    let found = problems(|flow| {
        flow.run("begin", work);
        flow.parallel("both", |all| {
            all.branch("one", |b| b.when("back?", |order| order.paid, |then| then.go_to("begin")));
            all.branch("two", |b| b.run("stay", work));
        });
        flow.for_each(
            "lines",
            |order| order.lines.clone(),
            |each| {
                each.run("line", line_work);
                each.go_to("lines");
            },
        );
        flow.step::<Check>("check").outcome("bad", |bad| bad.go_to("begin")).branches(|each| each.go_to("begin"));
    });
    let outside =
        |target: &str, owner: &str, kind| ProblemKind::TargetOutside { target: target.into(), owner: owner.into(), kind };
    assert_eq!(
        found,
        [
            ("go to begin in back?/1".to_owned(), outside("begin", "both", "parallel")),
            ("go to lines in lines/1".to_owned(), outside("lines", "lines", "for-each")),
            ("go to begin in check/2".to_owned(), outside("begin", "check", "step")),
        ]
    );
}

#[test]
fn a_step_that_no_way_leads_to_is_found() {
    let unreachable = |step| one(step, ProblemKind::Unreachable);
    assert_eq!(
        problems(|flow| {
            flow.run("a", work);
            flow.end();
            flow.run("b", work);
            flow.run("c", work);
        }),
        unreachable("b")
    );
    assert_eq!(
        problems(|flow| {
            flow.when("paid?", |order| order.paid, |then| then.end()).otherwise(|other| other.end());
            flow.run("b", work);
        }),
        unreachable("b")
    );
    assert_eq!(
        problems(|flow| {
            flow.parallel("both", |all| {
                all.branch("one", |b| b.run("a", work));
                all.branch("two", |b| b.end());
            });
            flow.when("paid?", |order| order.paid, |then| then.run("b", work));
        }),
        unreachable("paid?")
    );
}

#[test]
fn a_step_after_an_end_is_reached_by_a_jump_or_past_a_choice() {
    sound(|flow| {
        flow.when("late?", |order| order.paid, |then| then.go_to("late"));
        flow.run("a", work);
        flow.end();
        flow.run("late", work);
    });
    sound(|flow| {
        flow.when("paid?", |order| order.paid, |then| then.end());
        flow.decide("size", |order| order.lines.len()).case(0, |none| none.end());
        flow.step::<Check>("check").outcome(1, |one| one.end());
        flow.wait_for("x", |order| order.id.clone()).timeout(Duration::ZERO).on_timeout(|late| late.end());
        flow.for_each("lines", |order| order.lines.clone(), |each| each.end());
        flow.repeat_while(
            "while",
            |order| order.paid,
            |body| {
                body.run("a", work);
                body.end();
            },
        );
        flow.run("last", work);
    });
}

#[test]
fn a_circle_of_jumps_that_nothing_leaves_is_found() {
    let endless = |step, target: &str| one(step, ProblemKind::EndlessCycle { target: target.into() });
    assert_eq!(
        problems(|flow| {
            flow.run("a", work);
            flow.parallel("both", |all| all.branch("one", |b| b.run("b", work)));
            flow.for_each("lines", |order| order.lines.clone(), |each| each.run("c", line_work));
            flow.go_to("a");
        }),
        endless("go to a", "a")
    );
    assert_eq!(
        problems(|flow| {
            flow.when(
                "paid?",
                |order| order.paid,
                |then| {
                    then.run("a", work);
                    then.go_to("a");
                },
            );
        }),
        endless("go to a in paid?/1", "a")
    );
    // Two jumps in one circle are one problem.
    assert_eq!(
        problems(|flow| {
            flow.run("a", work);
            flow.go_to("c");
            flow.run("b", work);
            flow.go_to("a");
            flow.run("c", work);
            flow.go_to("b");
        }),
        endless("go to c", "c")
    );
}

#[test]
fn a_circle_of_jumps_that_waits_or_branches_is_sound() {
    for inside in 0..6 {
        sound(move |flow| {
            flow.run("a", work);
            match inside {
                0 => _ = flow.wait_for("x", |order| order.id.clone()),
                1 => flow.delay("pause", Duration::from_secs(1)),
                2 => _ = flow.when("paid?", |order| order.paid, |then| then.end()),
                3 => _ = flow.step::<Check>("check").outcome("done", |done| done.run("b", work)),
                4 => _ = flow.parallel("both", |all| all.branch("one", |b| b.delay("pause", Duration::from_secs(1)))),
                _ => flow.repeat_while("while", |order| order.paid, |body| body.run("b", work)),
            }
            flow.go_to("a");
        });
    }
}
