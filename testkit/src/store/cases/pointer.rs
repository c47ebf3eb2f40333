//! Pointers: written as deltas, loaded when open.

use crate::store::{
    case::Checked,
    tools::{Nodes, Owner, check, check_eq, json, load, pointer, pointer_id},
};
use latchwork_core::store::{PointerRecord, PointerStatus, WorkflowStatus};

pub(in crate::store) async fn every_status_goes_round(nodes: &Nodes) -> Checked {
    for status in WorkflowStatus::ALL {
        let mut owner = Owner::new(&nodes.one).await?;
        let answer = owner.end(status).await?;
        let header = load(&nodes.other, &owner.id).await?.header;
        check_eq!(header.status, status, "the status");
        check_eq!(header.ended.is_some(), status.is_terminal(), "whether {status} has an end");
        check!(header.ended.is_none_or(|ended| ended <= answer.now && ended >= header.created), "the end {:?}", header.ended);
    }
    let mut owner = Owner::new(&nodes.one).await?;
    let pointers: Vec<_> =
        (1..).zip(PointerStatus::ALL).map(|(sequence, status)| pointer(sequence).with_status(status)).collect();
    owner.write(|checkpoint| checkpoint.pointers = pointers.clone()).await?;
    check_eq!(nodes.other.history(&owner.id, 0, 100).await?.items, pointers, "every pointer, as history");
    let open: Vec<_> = pointers.into_iter().filter(|pointer| pointer.status.is_open()).collect();
    let found = load(&nodes.other, &owner.id).await?;
    check_eq!(found.pointers, open, "the open pointers");
    check_eq!(found.last_sequence, PointerStatus::ALL.len() as i64, "the last sequence, of a finished pointer");
    Ok(())
}

pub(in crate::store) async fn ten_thousand_pointers_are_written_as_deltas(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    for part in 0..10_i64 {
        let status = |sequence: i64| if sequence % 4_000 == 1 { PointerStatus::Ready } else { PointerStatus::Complete };
        let sequences = part * 1_000 + 1..=(part + 1) * 1_000;
        owner
            .write(|checkpoint| {
                checkpoint.pointers = sequences.map(|number| pointer(number).with_status(status(number))).collect();
            })
            .await?;
    }
    let sequences = |pointers: &[PointerRecord]| pointers.iter().map(|pointer| pointer.sequence).collect::<Vec<_>>();
    let found = load(&nodes.other, &owner.id).await?;
    check_eq!(sequences(&found.pointers), [1, 4_001, 8_001], "the open pointers");
    check_eq!(found.last_sequence, 10_000, "the last sequence");

    let changed = pointer(4_001).with_status(PointerStatus::Complete).with_state(json("1"));
    owner.write(|checkpoint| checkpoint.pointers = vec![changed.clone(), pointer(10_001)]).await?;
    let found = load(&nodes.other, &owner.id).await?;
    check_eq!(sequences(&found.pointers), [1, 8_001, 10_001], "the open pointers after a delta");

    let (mut all, mut more) = (Vec::new(), true);
    while more {
        let after = all.last().map_or(0, |pointer: &PointerRecord| pointer.sequence);
        let page = nodes.other.history(&owner.id, after, 3_000).await?;
        check!(!page.items.is_empty(), "a page after {after} is empty although there is more");
        more = page.more;
        all.extend(page.items);
    }
    check!(sequences(&all).into_iter().eq(1..=10_001), "history must hold each pointer once and in order");
    check_eq!(all.get(4_000), Some(&changed), "the pointer that changed");
    Ok(())
}

pub(in crate::store) async fn a_scope_loads_its_finished_pointers(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let (saga, other) = (pointer_id("saga"), pointer_id("another"));
    let of = |sequence, scope, status| pointer(sequence).with_scope(scope).with_status(status);
    let pointers = vec![
        of(5, saga, PointerStatus::Complete),
        of(2, saga, PointerStatus::Complete),
        of(3, other, PointerStatus::Complete),
        of(4, saga, PointerStatus::Ready),
        pointer(1).with_status(PointerStatus::Complete),
    ];
    owner.write(|checkpoint| checkpoint.pointers = pointers).await?;
    let expected = [of(2, saga, PointerStatus::Complete), of(5, saga, PointerStatus::Complete)];
    check_eq!(nodes.other.load_scope(&owner.id, saga).await?, expected, "the finished pointers of the scope");

    owner.write(|checkpoint| checkpoint.pointers = vec![of(2, saga, PointerStatus::Compensated)]).await?;
    let expected = [of(2, saga, PointerStatus::Compensated), of(5, saga, PointerStatus::Complete)];
    check_eq!(nodes.other.load_scope(&owner.id, saga).await?, expected, "the scope after a compensation");
    check_eq!(nodes.other.history(&owner.id, 0, 10).await?.items.len(), 5, "the pointers in the history");
    Ok(())
}

pub(in crate::store) async fn a_finished_pointer_can_open_again(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    owner.write(|checkpoint| checkpoint.pointers = vec![pointer(1).with_status(PointerStatus::Cancelled), pointer(2)]).await?;
    owner.write(|checkpoint| checkpoint.pointers = vec![pointer(1)]).await?;
    let found = load(&nodes.other, &owner.id).await?;
    check_eq!(found.pointers, [pointer(1), pointer(2)], "the open pointers");
    check_eq!(nodes.other.history(&owner.id, 0, 10).await?.items, found.pointers, "the history");
    Ok(())
}
