//! The cluster as its user meets it: the program, its exit status, and what it prints.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use common::{COUNTS, Ended, LIMIT, cluster, wait};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Lines in the ledger.
fn effects(folder: &Path) -> usize {
    let files =
        |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let lines = |file: PathBuf| std::fs::read_to_string(file).map_or(0, |text| text.lines().count());
    files(folder.join("ledger")).into_iter().flat_map(files).map(lines).sum()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_node_costs_nothing_and_the_next_run_starts_nothing_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Ended::of(&mut cluster(folder.path(), &["--limit", "60", "--json"]));
    assert!(first.status.success(), "{first:?}");
    assert_eq!(first.numbers(COUNTS), [60, 58, 2, 0, 0], "{first:?}");
    assert!(first.err.contains("killed with SIGKILL, node-4 started"), "{first:?}");
    let json = first.json();
    let mut names: Vec<_> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    let promised =
        ["completed", "duplicated_transitions", "failed", "lost", "orders", "repeated_bodies", "seconds", "steps_per_second"];
    assert_eq!(names, promised);
    assert!(json["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{first:?}");
    assert!(json["steps_per_second"].as_f64().is_some_and(|steps| steps > 0.0), "{first:?}");

    let written = effects(folder.path());
    let again = Ended::of(&mut cluster(folder.path(), &["--limit", "60", "--json"]));
    assert!(again.status.success(), "{again:?}");
    assert_eq!(again.numbers(COUNTS), [60, 58, 2, 0, 0], "{again:?}");
    assert!(again.err.contains("60 of 60 orders were started by an earlier run"), "{again:?}");
    assert_eq!((effects(folder.path()), again.json()["steps_per_second"].as_f64()), (written, Some(0.0)));
}

#[test]
fn the_table_shows_the_numbers_and_each_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = Ended::of(&mut cluster(folder.path(), &["--limit", "20", "--nodes", "2", "--kill", "0"]));
    assert!(ended.status.success(), "{ended:?}");
    let row = |name: &str| {
        let line = ended.out.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name} in {ended:?}"));
        line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    for (name, value) in
        [("orders  ", "20"), ("completed", "19"), ("lost", "0"), ("duplicated transitions", "0"), ("repeated bodies", "0")]
    {
        assert_eq!(row(name)[1], value, "{name} in {ended:?}");
    }
    let nodes = [row("node-1"), row("node-2")];
    let shipped: usize = nodes.iter().map(|node| node[2].parse::<usize>().expect("a number")).sum();
    assert_eq!((shipped, &*nodes[0][3], &*nodes[1][3]), (19, "stopped", "stopped"));
    assert!(ended.out.contains("failed: order A-10017"), "{ended:?}");
}

#[cfg(unix)]
fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().expect("a signal is sent");
    assert!(sent.success());
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_stops_cleanly_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = cluster(folder.path(), &["--limit", "60", "--json", "--kill", "0"]).spawn().expect("the program starts");
    until("the run makes progress", || effects(folder.path()) > 80);
    signal("INT", running.id());
    let interrupted = wait(running);
    assert_eq!((interrupted.status.code(), &*interrupted.out), (Some(130), ""), "{interrupted:?}");
    assert!(interrupted.err.contains("stopped cleanly"), "{interrupted:?}");
    assert!(effects(folder.path()) < 290, "it was interrupted too late to show anything");

    let next = Ended::of(&mut cluster(folder.path(), &["--limit", "60", "--json", "--kill", "0"]));
    assert!(next.status.success(), "{next:?}");
    // Running steps were let finish and were written, so not even a body was repeated.
    assert_eq!((next.numbers(COUNTS), next.numbers(["repeated_bodies"])), ([60, 58, 2, 0, 0], [0]), "{next:?}");
}

#[cfg(unix)]
#[test]
fn nodes_end_with_a_killed_parent_and_the_next_run_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = cluster(folder.path(), &["--limit", "60", "--json", "--kill", "0"]).spawn().expect("the program starts");
    until("the run makes progress", || effects(folder.path()) > 80);
    running.kill().expect("killed");
    // The nodes share its outputs: this returns when they have ended.
    let killed = wait(running);
    assert!(!killed.status.success());

    let next = Ended::of(&mut cluster(folder.path(), &["--limit", "60", "--json", "--kill", "0"]));
    assert!(next.status.success(), "{next:?}");
    assert_eq!(next.numbers(COUNTS), [60, 58, 2, 0, 0], "{next:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_node_that_dies_by_itself_is_told_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = cluster(folder.path(), &["--limit", "60", "--json", "--kill", "0"]).spawn().expect("the program starts");
    until("the run makes progress", || effects(folder.path()) > 80);
    let children: String = std::fs::read_dir(format!("/proc/{}/task", running.id()))
        .expect("threads")
        .map(|thread| std::fs::read_to_string(thread.expect("a thread").path().join("children")).expect("children"))
        .collect();
    let node = children.split_whitespace().next().expect("a node").parse().expect("a process");
    signal("KILL", node);
    let ended = wait(running);
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.err.contains("died") && ended.err.contains("the others go on"), "{ended:?}");
    assert_eq!(ended.numbers(COUNTS), [60, 58, 2, 0, 0], "{ended:?}");
}

#[test]
fn a_bad_line_is_told_with_its_number_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let orders = folder.path().join("my orders.csv");
    let lines = "id,customer,sku,quantity,unit_price_cents,country\n\
        B-1,Ann,MUG-ENAMEL,2,990,DE\nB-2,Bob,MUG-ENAMEL,many,990,DE\nB-3,Cid,MUG-ENAMEL\nB-4,Dora,SPOON-MEASURE,1,490,FR\n";
    std::fs::write(&orders, lines).expect("written");
    let (data, orders) = (folder.path().join("data"), orders.display().to_string());
    let ended = Ended::of(&mut cluster(&data, &["--orders", &orders, "--json", "--kill", "0", "--nodes", "1"]));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.numbers(COUNTS), [2, 2, 0, 0, 0], "{ended:?}");
    assert!(ended.err.contains("my orders.csv, line 3: left out: quantity: invalid digit"), "{ended:?}");
    assert!(ended.err.contains("my orders.csv, line 4: left out: it has 3 fields instead of 6"), "{ended:?}");
}

#[test]
fn an_unknown_scheme_and_a_missing_file_are_told_before_anything_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    for (arguments, told) in [
        (["--store", "oracle:shop"], "--store oracle:...: this program knows no store `oracle`; it knows sqlite:FILE"),
        (["--queue", "kafka:shop"], "it knows sqlite:FILE"),
        (["--lock", "zookeeper:shop"], "it knows file:FOLDER"),
        (["--orders", "no-such.csv"], "no-such.csv cannot be opened"),
    ] {
        let ended = Ended::of(&mut cluster(&data, &arguments));
        assert_eq!((ended.status.code(), &*ended.out), (Some(1), ""), "{ended:?}");
        assert!(ended.err.starts_with("error: ") && ended.err.contains(told), "{ended:?}");
        assert!(!data.exists(), "{arguments:?}");
    }
    let misspelt = Ended::of(&mut cluster(&data, &["--store", "shop.db"]));
    assert_eq!(misspelt.status.code(), Some(2));
    assert!(misspelt.err.contains("a scheme, a colon, and where"), "{misspelt:?}");
}
