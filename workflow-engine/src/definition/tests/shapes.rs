//! What a definition's shape depends on, and how a difference is told.

use super::*;

#[test]
fn a_shape_is_canonical_json_without_types_times_and_retry() {
    let shape = |span, retry: Retry| {
        sound(move |flow| {
            flow.run("b", work).on_error(retry.clone());
            flow.delay("a", span);
        })
    };
    let (one, other) = (shape(Duration::ZERO, Retry::never()), shape(Duration::from_secs(9), Retry::default()));
    assert_eq!(one.shape(), r#"{"root":["b","a"],"steps":{"a":{"kind":"delay"},"b":{"kind":"step"}}}"#);
    assert_eq!((one.shape(), one.fingerprint()), (other.shape(), other.fingerprint()));
    // The first half of the SHA-256 of that text.
    assert_eq!(one.fingerprint(), "76266a7af17277a3b34ec16ad6ae3374");
    assert_eq!(sound(big).fingerprint(), sound(big).fingerprint());
    assert_eq!(shape_difference(sound(big).shape(), sound(big).shape()), "");
}

#[test]
fn a_difference_of_shapes_is_said_in_words() {
    let base = |flow: &mut WorkflowBuilder<Order>| {
        flow.run("a", work);
        flow.run("b", work);
        flow.when("c", |order| order.paid, |then| then.run("d", work));
        flow.run("e", work);
    };
    let old = sound(base);
    let said = |describe: fn(&mut WorkflowBuilder<Order>)| {
        let new = sound(describe);
        assert_ne!(old.fingerprint(), new.fingerprint());
        shape_difference(old.shape(), new.shape())
    };
    assert_eq!(
        said(|flow| {
            flow.run("a", work);
            flow.when("c", |order| order.paid, |then| then.run("d", work));
            flow.run("f", work);
            flow.run("e", work);
        }),
        "step `b` was removed; step `f` was added after `c`"
    );
    assert_eq!(
        said(|flow| {
            flow.run("e", work);
            flow.run("a", work);
            flow.run("b", work);
            flow.when("c", |order| order.paid, |then| then.run("d", work)).otherwise(|_| ());
        }),
        "step `e` now stands at the beginning; `c` has 2 branches, no more 1"
    );
    assert_eq!(
        said(|flow| {
            flow.run("a", work);
            flow.delay("b", Duration::ZERO);
            flow.when(
                "c",
                |order| order.paid,
                |then| {
                    then.run("e", work);
                    then.run("d", work);
                },
            );
        }),
        "step `e` now stands at the beginning of branch 1 of `c`; `b` was a step and is a delay"
    );
    assert_eq!(
        said(|flow| {
            flow.step::<Check>("a").branches(|each| each.run("x", async |_, _| Ok(())));
            flow.run("b", work);
            flow.when("c", |order| order.paid, |then| then.run("d", work));
            flow.run("e", work);
        }),
        "step `x` was added at the beginning of branch 1 of `a`; `a` got a branch for its values"
    );
    assert!(shape_difference("{}", old.shape()).starts_with("the shapes cannot be compared"));
}

#[test]
fn a_jump_that_leads_elsewhere_is_another_shape() {
    let shape = |target: &'static str| {
        sound(move |flow| {
            flow.run("a", work);
            flow.run("b", work);
            flow.when("again?", |order| order.paid, |then| then.go_to(target));
        })
    };
    let difference = shape_difference(shape("a").shape(), shape("b").shape());
    assert_eq!(
        difference,
        "step `go to a in again?/1` was removed; step `go to b in again?/1` was added at the beginning of branch 1 of `again?`"
    );
}
