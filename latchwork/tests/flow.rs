//! Control flow: conditions, loops, collections, parallel branches, jumps, ends, and all of them in each other.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;

workflow!(Typed, |flow| {
    flow.run("double", async |data, _| Ok(data.n * 2)).output(|n, data| data.n = n);
    flow.step::<Adder>("add")
        .input(|body, data| body.left = data.n)
        .input(|body, _| body.right = 5)
        .output(|body, data| data.n = body.sum)
        .output(|body, data| data.text = format!("{}+{}", body.left, body.right));
});

#[derive(Default)]
struct Adder {
    left: i64,
    right: i64,
    sum: i64,
}

impl StepBody for Adder {
    async fn run(&mut self, _: &StepContext) -> StepResult {
        self.sum = self.left + self.right;
        Ok(ExecutionResult::next())
    }
}

workflow!(Choices, |flow| {
    flow.when("positive?", |data| data.n > 0, |then| then.run("positive", async |_, cx| step(cx).await))
        .otherwise(|other| other.run("not positive", async |_, cx| step(cx).await));
    flow.when("even?", |data| data.n % 2 == 0, |then| then.run("even", async |_, cx| step(cx).await));
    flow.decide("size", |data| data.n.abs())
        .case(0, |_| {})
        .case(1, |one| one.run("one", async |_, cx| step(cx).await))
        .case_if(
            |n| *n > 100,
            |many| {
                many.run("many", async |_, cx| step(cx).await);
                many.end();
            },
        )
        .otherwise(|some| some.run("some", async |_, cx| step(cx).await));
    flow.run("last", async |_, cx| step(cx).await);
});

workflow!(Loops, |flow| {
    flow.repeat_while(
        "up to n",
        |data| (data.items.len() as i64) < data.n,
        |round| {
            round
                .run("count", async |data, cx| step(cx).await.map(|()| data.items.len() as i64))
                .output(|n, data| data.items.push(n));
            round.when(
                "odd?",
                |data| data.items.len() % 2 == 1,
                |odd| {
                    odd.run("odd", async |_, cx| step(cx).await).output(|(), data| data.log.push("odd".into()));
                },
            );
        },
    );
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(Each, |flow| {
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.run("first", async |(_, item), _| Ok(*item)).output_each(|item, data, same| {
                assert_eq!(item, *same);
                data.n += item;
            });
            each.run("second", async |_, cx| step(cx).await).output_each(|(), data, item| data.log.push(item.to_string()));
        },
    );
});

workflow!(OneByOne, |flow| {
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.run("take", async |_, cx| step(cx).await).output_each(|(), data, item| data.log.push(item.to_string()));
        },
    )
    .sequential();
});

workflow!(Many, |flow| {
    flow.for_each(
        "items",
        |data| (0..data.n).collect(),
        |each| {
            each.run("take", async |(_, item), _| Ok(*item)).replayable().output(|item, data| data.items[0] += item);
        },
    );
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(ManyOneByOne, |flow| {
    flow.for_each(
        "items",
        |data| (0..data.n).collect(),
        |each| {
            each.run("take", async |(_, item), _| Ok(*item)).output(|item, data| data.items[0] += item);
        },
    )
    .sequential();
});

workflow!(Branches, |flow| {
    flow.parallel("both", |all| {
        all.branch("a", |b| {
            b.run("a1", async |_, cx| step(cx).await).output(|(), data| data.log.push("a1".into()));
            b.run("a2", async |_, cx| step(cx).await).output(|(), data| data.log.push("a2".into()));
        });
        all.branch("b", |b| {
            b.run("b1", async |_, cx| step(cx).await).output(|(), data| data.log.push("b1".into()));
        });
        all.branch("c", |b| {
            b.when("never", |_| false, |never| never.run("c1", async |_, cx| step(cx).await));
        });
    });
    flow.run("join", async |_, cx| step(cx).await).output(|(), data| data.log.push("join".into()));
});

workflow!(Jumps, |flow| {
    flow.run("begin", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.when(
        "again?",
        |data| data.n < 4,
        |again| {
            again.run("note", async |_, cx| step(cx).await).output(|(), data| data.log.push(data.n.to_string()));
            again.when("skip?", |data| data.n == 2, |skip| skip.go_to("finish"));
            again.go_to("begin");
        },
    );
    flow.run("finish", async |_, cx| step(cx).await);
});

workflow!(EndsInside, |flow| {
    flow.parallel("all", |all| {
        all.branch("ends", |b| {
            b.for_each(
                "items",
                |data| data.items.clone(),
                |each| {
                    each.when("the end?", |(_, item)| *item == 3, |end| end.end());
                    each.run("take", async |_, cx| step(cx).await);
                },
            )
            .sequential();
        });
        all.branch("waits", |b| b.wait_for("never", |_| "k".into()));
        all.branch("sleeps", |b| b.delay("long", Duration::from_hours(1_000)));
    });
    flow.run("not reached", async |_, cx| step(cx).await);
});

workflow!(Deep, |flow| {
    flow.repeat_while(
        "rounds",
        |data| data.n < 2,
        |round| {
            round.for_each(
                "items",
                |data| data.items.clone(),
                |each| {
                    each.parallel("sides", |all| {
                        all.branch("left", |left| {
                            left.when(
                                "even?",
                                |(_, item)| item % 2 == 0,
                                |even| {
                                    even.for_each(
                                        "inner",
                                        |(_, item)| vec![*item * 10, *item * 10 + 1],
                                        |inner| {
                                            inner.repeat_while(
                                                "never",
                                                |_| false,
                                                |never| never.run("nothing", async |_, cx| step(cx).await),
                                            );
                                            inner
                                                .run("deepest", async |((data, outer), inner), cx| {
                                                    step(cx).await?;
                                                    Ok(format!("{}/{outer}/{inner}", data.n))
                                                })
                                                .output(|text, data| data.log.push(text));
                                        },
                                    );
                                },
                            )
                            .otherwise(|odd| {
                                odd.run("odd", async |(_, item), _| Ok(item.to_string())).output(|text, data| data.log.push(text))
                            });
                        });
                        all.branch("right", |right| {
                            right
                                .decide("which", |(_, item)| *item)
                                .case(1, |one| one.delay("pause", Duration::from_secs(3)))
                                .otherwise(|other| {
                                    other
                                        .wait_for("go", |(data, item)| format!("{}/{item}", data.n))
                                        .output(|n: i64, data| data.log.push(n.to_string()))
                                });
                        });
                    });
                },
            );
            round.run("next round", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
        },
    );
});

on_each_store! {
    async fn inputs_and_outputs_are_typed(world: World) {
        let node = world.run(Typed).await;
        let done = world.soon(node.begin::<Typed>(Data::n(4)).await.completion()).await.expect("done");
        assert_eq!((done.n, done.text.as_str()), (13, "8+5"));
        node.stop_clean().await;
    }

    async fn conditions_and_decisions_take_the_branch_that_fits(world: World) {
        let node = world.run(Choices).await;
        let expected: [(i64, &[&str]); 5] = [
            (0, &["not positive", "even", "last"]),
            (1, &["positive", "one", "last"]),
            (-1, &["not positive", "one", "last"]),
            (4, &["positive", "even", "some", "last"]),
            (102, &["positive", "even", "many"]),
        ];
        let mut before = 0;
        for (n, steps) in expected {
            world.soon(node.begin::<Choices>(Data::n(n)).await.completion()).await.expect("done");
            assert_eq!(&world.probe.steps()[before..], steps, "{n}");
            before += steps.len();
        }
        node.stop_clean().await;
    }

    async fn a_loop_asks_before_each_round_and_each_round_has_its_own_keys(world: World) {
        let node = world.run(Loops).await;
        let done = world.soon(node.begin::<Loops>(Data::n(7)).await.completion()).await.expect("done");
        assert_eq!((done.items, done.log.len()), ((0..7).collect(), 4));
        assert_eq!((world.probe.keys("count").len(), world.probe.runs("count")), (7, 7));
        assert_eq!((world.probe.keys("odd").len(), world.probe.runs("after")), (4, 1));
        let none = world.soon(node.begin::<Loops>(Data::n(0)).await.completion()).await.expect("done");
        assert_eq!(none.items, [0_i64; 0]);
        node.stop_clean().await;
    }

    async fn a_for_each_runs_its_items_beside_each_other_and_joins_them(world: World) {
        let node = world.run(Each).await;
        let handle = node.begin::<Each>(Data::items(1..=40)).await;
        let done = world.soon(handle.completion()).await.expect("done");
        assert_eq!(done.n, 820);
        assert_eq!(done.clone().sorted(), { let mut all: Vec<_> = (1..=40).map(|n| n.to_string()).collect(); all.sort(); all });
        assert_eq!(world.probe.keys("second").len(), 40);
        assert!((2..=16).contains(&world.probe.most_at_once()), "{}", world.probe.most_at_once());
        let none = world.soon(node.begin::<Each>(Data::default()).await.completion()).await.expect("done");
        assert_eq!(none.log, [""; 0]);
        node.stop_clean().await;
    }

    async fn a_sequential_for_each_keeps_the_order_and_the_collection_it_began_with(world: World) {
        let node = world.run(OneByOne).await;
        let handle = node.begin::<OneByOne>(Data::items([5, 3, 9, 3, 1])).await;
        let done = world.soon(handle.completion()).await.expect("done");
        assert_eq!(done.log, ["5", "3", "9", "3", "1"]);
        assert_eq!((world.probe.most_at_once(), world.probe.keys("take").len()), (1, 5));
        node.stop_clean().await;
    }

    async fn ten_thousand_items_run_through(world: World) {
        let node = world.run(Many).await;
        let handle = node.begin::<Many>(Data { n: 10_000, items: vec![0], ..Data::default() }).await;
        assert_eq!(world.soon(handle.completion()).await.expect("done").items, [49_995_000]);
        assert_eq!(world.probe.runs("after"), 1);
        node.stop_clean().await;
    }

    async fn thousands_of_items_run_one_by_one(world: World) {
        let node = world.run(ManyOneByOne).await;
        // A checkpoint follows each, which costs a file a sync.
        let n = if world.is_memory() { 10_000 } else { 1_000 };
        let handle = node.begin::<ManyOneByOne>(Data { n, items: vec![0], ..Data::default() }).await;
        assert_eq!(world.soon(handle.completion()).await.expect("done").items, [n * (n - 1) / 2]);
        node.stop_clean().await;
    }

    async fn parallel_branches_are_joined_once(world: World) {
        let node = world.run(Branches).await;
        let done = world.soon(node.begin::<Branches>(Data::default()).await.completion()).await.expect("done");
        assert_eq!(done.log.last().map(String::as_str), Some("join"));
        assert_eq!(done.sorted(), ["a1", "a2", "b1", "join"]);
        assert_eq!(world.probe.runs("join"), 1);
        node.stop_clean().await;
    }

    async fn a_branch_that_is_held_up_does_not_hold_up_its_siblings(world: World) {
        let node = world.run(Branches).await;
        let gate = world.probe.hold("a1");
        let handle = node.begin::<Branches>(Data::default()).await;
        world.soon_until(async || handle.data().await.expect("data").log == ["b1"]).await;
        assert_eq!(world.probe.runs("join"), 0);
        gate.open();
        let done = world.soon(handle.completion()).await.expect("done");
        assert_eq!(done.log, ["b1", "a1", "a2", "join"]);
        node.stop_clean().await;
    }

    async fn jumps_go_back_and_out_and_each_pass_has_its_own_keys(world: World) {
        let node = world.run(Jumps).await;
        let done = world.soon(node.begin::<Jumps>(Data::default()).await.completion()).await.expect("done");
        assert_eq!((done.n, done.log), (2, vec!["1".to_owned(), "2".to_owned()]));
        let done = world.soon(node.begin::<Jumps>(Data::n(2)).await.completion()).await.expect("done");
        assert_eq!((done.n, done.log), (4, vec!["3".to_owned()]));
        assert_eq!(world.probe.keys("begin").len(), world.probe.runs("begin"));
        assert_eq!((world.probe.runs("begin"), world.probe.runs("finish")), (4, 2));
        node.stop_clean().await;
    }

    async fn an_end_inside_ends_all(world: World) {
        let node = world.run(EndsInside).await;
        let handle = node.begin::<EndsInside>(Data::items([1, 2, 3, 4])).await;
        world.soon(handle.completion()).await.expect("complete");
        assert_eq!(world.probe.steps(), ["take", "take"]);
        let loaded = world.store().load(handle.id()).await.expect("loads").expect("there");
        assert_eq!((loaded.pointers.len(), loaded.subscriptions.len(), loaded.header.due), (0, 0, None));
        node.stop_clean().await;
    }

    async fn everything_nests_five_deep_over_restarts(world: World) {
        let mut node = world.run(Deep).await;
        let handle = node.begin::<Deep>(Data::items([1, 2, 3])).await;
        let id = handle.id().clone();
        for round in 0..2 {
            world.fly_until(async || world.store().load(&id).await.expect("loads").expect("there").pointers.iter().filter(|p| p.status == latchwork::store::PointerStatus::WaitingForEvent).count() == 2).await;
            node.stop_clean().await;
            world.lose_queue();
            node = world.run(Deep).await;
            for item in [2, 3] {
                node.publish_event("go", &format!("{round}/{item}"), 100 * round + item).await.expect("published");
            }
            world.fly_until(async || world.probe.runs("next round") as i64 == round + 1).await;
        }
        let record = world.fly(node.instance(id).ended()).await.expect("ended");
        let latchwork::store::InstanceRecord::Instance { data, .. } = record else { panic!("deleted") };
        let done: Data = serde_json::from_str(data.as_str()).expect("data");
        let mut expected: Vec<String> = (0..2).flat_map(|round| ["1".into(), "3".into(), format!("{round}/2/20"), format!("{round}/2/21"), (100 * round + 2).to_string(), (100 * round + 3).to_string()]).collect();
        expected.sort();
        assert_eq!(done.sorted(), expected);
        assert_eq!((world.probe.runs("nothing"), world.probe.runs("next round"), world.probe.runs("deepest")), (0, 2, 4));
        assert_eq!(world.probe.keys("deepest").len(), 4);
        node.stop_clean().await;
    }
}
