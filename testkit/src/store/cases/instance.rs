//! Creating instances, and reading them back.

use crate::store::{
    case::Checked,
    tools::{Nodes, ORDER, Owner, check, check_eq, check_matches, json, json_of, load, order, pointer_id, read_inbox, together},
};
use latchwork_core::store::{
    AttributeValue, CreateOutcome, InstanceId, InstanceQuery, InstanceRecord, ParentLink, Revision, WorkflowStatus,
};
use std::collections::{BTreeMap, BTreeSet};

pub(in crate::store) async fn a_created_instance_reads_back_with_every_field(nodes: &Nodes) -> Checked {
    let before = nodes.one.now().await?;
    let parent = ParentLink { instance: InstanceId::new(), pointer: pointer_id("call") };
    let new = order()
        .with_business_key("A-1001")
        .with_reference("zażółć \"gęślą\"")
        .with_parent(parent)
        .with_attribute("customer", AttributeValue::Text("ACME".into()))
        .with_attribute("amount", AttributeValue::Number(12.5))
        .with_attribute("by", AttributeValue::Time(before));
    check_eq!(nodes.one.create(std::slice::from_ref(&new)).await?, [CreateOutcome::Created], "the answer to a create");

    let found = load(&nodes.other, &new.id).await?;
    let header = &found.header;
    check_eq!(header.id, new.id, "id");
    check_eq!((&header.definition, header.version, &header.fingerprint), (&new.definition, 1, &new.fingerprint), "definition");
    check_eq!(header.business_key, new.business_key, "business key");
    check_eq!(header.reference, new.reference, "reference");
    check_eq!(header.parent, new.parent, "parent");
    check!(header.created >= before && header.created <= found.now, "created at {}, seen at {}", header.created, found.now);
    check_eq!((header.status, &header.reason), (WorkflowStatus::Runnable, &None), "status");
    check!(header.due.is_some_and(|due| due <= found.now), "a new instance is due now, it is due {:?}", header.due);
    check_eq!((header.fault_count, header.ended), (0, None), "faults and end");
    check_eq!((header.revision, header.writer), (Revision::FIRST, None), "revision and writer");
    check_eq!(found.data, new.data, "data");
    check_eq!((found.pointers.len(), found.last_sequence), (0, 0), "pointers");
    check_eq!((found.subscriptions.len(), found.activities.len(), found.inbox.len()), (0, 0, 0), "waits and inbox");

    let record = nodes.other.get(&new.id).await?;
    let (header, data, attributes) = check_matches!(
        record, Some(InstanceRecord::Instance { header, data, attributes }) => (header, data, attributes), "the record"
    );
    check_eq!(header, found.header, "the record's header");
    check_eq!(data, new.data, "the record's data");
    let mut expected = new.attributes.clone();
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    check_eq!(attributes, expected, "the attributes, by name");
    check_eq!(nodes.other.find_by_key(ORDER, "A-1001").await?, Some(new.id), "the holder of the business key");
    Ok(())
}

pub(in crate::store) async fn a_repeated_create_changes_nothing(nodes: &Nodes) -> Checked {
    let new = order().with_business_key("A-1");
    let twice = [new.clone(), new.clone()];
    check_eq!(nodes.one.create(&twice).await?, [CreateOutcome::Created, CreateOutcome::Created], "two tries in one call");
    let mut owner = Owner::existing(&nodes.one, new.id.clone());
    owner.write(|checkpoint| checkpoint.data = Some(json(r#"{"lines":3}"#))).await?;
    let before = owner.load().await?;
    check_eq!(nodes.other.create(&[new]).await?, [CreateOutcome::Created], "a later try");
    let after = owner.load().await?;
    check_eq!((after.header, after.data), (before.header, before.data), "the instance after a later try");
    Ok(())
}

pub(in crate::store) async fn a_create_answers_each_in_order(nodes: &Nodes) -> Checked {
    let first = order().with_business_key("A-1");
    nodes.one.create(std::slice::from_ref(&first)).await?;
    let batch = [order(), order().with_business_key("A-1"), order().with_business_key("A-2"), order().with_business_key("A-2")];
    let exists = |id: &InstanceId| CreateOutcome::Exists { instance: id.clone(), status: WorkflowStatus::Runnable };
    let expected = [CreateOutcome::Created, exists(&first.id), CreateOutcome::Created, exists(&batch[2].id)];
    check_eq!(nodes.one.create(&batch).await?, expected, "the answers");
    for (instance, is_there) in batch.iter().zip([true, false, true, false]) {
        check_eq!(nodes.other.load(&instance.id).await?.is_some(), is_there, "whether {} is there", instance.id);
    }
    Ok(())
}

pub(in crate::store) async fn an_unknown_instance_is_nothing(nodes: &Nodes) -> Checked {
    let id = InstanceId::new();
    check!(nodes.one.load(&id).await?.is_none(), "load finds nothing");
    check!(nodes.one.get(&id).await?.is_none(), "get finds nothing");
    check!(nodes.one.fence(&id).await?.is_none(), "there is no fence");
    check_eq!(nodes.one.load_scope(&id, pointer_id("saga")).await?, [], "its scope");
    check_eq!(nodes.one.history(&id, 0, 10).await?.items, [], "its history");
    check_eq!(nodes.one.errors(&id).await?, [], "its errors");
    check_eq!(read_inbox(&nodes.one, &id).await?, [], "its inbox");
    check_eq!(nodes.one.find_by_key(ORDER, "A-1").await?, None, "the holder of a free key");
    Ok(())
}

pub(in crate::store) async fn a_business_key_is_unique_over_versions_and_states_of_its_definition(nodes: &Nodes) -> Checked {
    let mut owner = Owner::of(&nodes.one, order().with_business_key("A-1")).await?;
    let mut second_version = order().with_business_key("A-1");
    second_version.version = 2;
    for status in [WorkflowStatus::Suspended, WorkflowStatus::Complete] {
        owner.end(status).await?;
        let expected = CreateOutcome::Exists { instance: owner.id.clone(), status };
        check_eq!(nodes.other.create(std::slice::from_ref(&second_version)).await?, [expected], "a key in status {status}");
    }
    let mut elsewhere = order().with_business_key("A-1");
    elsewhere.definition = "invoice".into();
    check_eq!(nodes.other.create(std::slice::from_ref(&elsewhere)).await?, [CreateOutcome::Created], "another definition's key");
    check_eq!(nodes.one.find_by_key("invoice", "A-1").await?, Some(elsewhere.id), "the other definition's holder");
    check_eq!(nodes.one.find_by_key(ORDER, "A-1").await?, Some(owner.id), "the first definition's holder");
    Ok(())
}

pub(in crate::store) async fn a_hundred_starts_by_look_alike_keys_make_one_instance_each(nodes: &Nodes) -> Checked {
    // The last two look the same: composed, and decomposed.
    let keys = ["A-1", "a-1", "A-1x", "\u{e9}", "e\u{301}"];
    let starts = (0..100).map(|number| {
        let (store, key) = (nodes.node(number).clone(), keys[number % keys.len()]);
        async move {
            let new = order().with_business_key(key);
            let answers = store.create(std::slice::from_ref(&new)).await?;
            Ok((key, new.id, answers))
        }
    });
    let mut holders: BTreeMap<&str, BTreeSet<InstanceId>> = BTreeMap::new();
    let mut created = 0;
    for (key, id, answers) in together(starts).await? {
        let holder = match answers.as_slice() {
            [CreateOutcome::Created] => {
                created += 1;
                id
            }
            [CreateOutcome::Exists { instance, .. }] => instance.clone(),
            _ => return Err(crate::store::case::Stop::Failed(format!("one start must have one answer: {answers:?}"))),
        };
        holders.entry(key).or_default().insert(holder);
    }
    check_eq!(created, keys.len(), "the number of instances created");
    for key in keys {
        let found = nodes.one.find_by_key(ORDER, key).await?;
        check_eq!(holders.remove(key), found.map(|id| BTreeSet::from([id])), "all starts by {key:?} were told its one holder");
    }
    check_eq!(nodes.one.find(&InstanceQuery::new()).await?.items.len(), keys.len(), "the instances in the store");
    Ok(())
}

pub(in crate::store) async fn names_are_compared_byte_by_byte(nodes: &Nodes) -> Checked {
    for name in ["Straße", "STRASSE", "strasse", "caf\u{e9}", "cafe\u{301}", "cafe"] {
        let mut new = order().with_reference(name).with_business_key(name);
        new.definition = name.into();
        check_eq!(nodes.one.create(std::slice::from_ref(&new)).await?, [CreateOutcome::Created], "a create by {name:?}");
        let queries = [
            InstanceQuery::new().with_definition(name),
            InstanceQuery::new().with_reference(name),
            InstanceQuery::new().with_business_key(name),
        ];
        for query in queries {
            let found: Vec<_> = nodes.other.find(&query).await?.items.into_iter().map(|found| found.header.id).collect();
            check_eq!(found, [new.id.clone()], "what {query:?} finds");
        }
    }
    Ok(())
}

pub(in crate::store) async fn data_goes_round_as_it_is(nodes: &Nodes) -> Checked {
    let texts = [
        "null",
        r#"{"b":1,"a":  1.0,"b":2}"#,
        r#""\u0000 \ud83d\ude00 \\ ' % _ \n""#,
        "\"zażółć 🦀 \u{2028} \u{7f}\"",
        "123456789012345678901234567890.123456789012345678901234567890",
    ];
    for text in texts {
        let mut new = order();
        new.data = json(text);
        let mut owner = Owner::of(&nodes.one, new.clone()).await?;
        check_eq!(load(&nodes.other, &owner.id).await?.data.as_str(), text, "data at the creation");
        owner.write(|checkpoint| checkpoint.data = Some(json("0"))).await?;
        owner.write(|checkpoint| checkpoint.data = Some(json(text))).await?;
        check_eq!(load(&nodes.other, &owner.id).await?.data.as_str(), text, "data of a checkpoint");
    }
    Ok(())
}

pub(in crate::store) async fn data_of_a_mebibyte_goes_round(nodes: &Nodes) -> Checked {
    let size = nodes.one.capabilities().largest_data.min(1 << 20);
    let mut new = order();
    new.data = json_of(size);
    let mut owner = Owner::of(&nodes.one, new.clone()).await?;
    let found = load(&nodes.other, &owner.id).await?.data;
    check!(found == new.data, "{size} bytes at the creation: {found:?} came back");
    let other = json(&format!("\"{}\"", "y".repeat(size - 2)));
    owner.write(|checkpoint| checkpoint.data = Some(other.clone())).await?;
    let found = load(&nodes.other, &owner.id).await?.data;
    check!(found == other, "{size} bytes in a checkpoint: {found:?} came back");
    Ok(())
}
