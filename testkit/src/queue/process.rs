//! Consumers in processes of their own, which can be killed. The children are the test program itself, started to run one ignored test.

use super::tools::{QUEUE, hints};
use latchwork_core::queue::QueueProvider;
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

const PART: &str = "LATCHWORK_TEST_QUEUE_PART";
/// What has not come by then is lost.
const LONG: Duration = Duration::from_secs(30);

/// What a child does; nothing in a process that no [`Consumer`] started. It opens a queue, says `ready`, waits for the parent's word, and does
/// its part:
///
/// * `hold` takes up to 100 hints, says `holds` and how many, and keeps them until the next word;
/// * `drain` takes hints and acknowledges them until none comes for half a second, says `took`, the instance and the attempt of each, and
///   `done`;
/// * `enqueue` queues one hint.
///
/// # Panics
/// When the queue fails: a child is a part of a test.
#[allow(clippy::expect_used, clippy::panic, reason = "a part of a test")]
pub async fn serve<Q: QueueProvider>(open: impl AsyncFnOnce() -> Q) {
    let Ok(part) = std::env::var(PART) else { return };
    let queue = open().await;
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    // The parent says when; its end is the child's.
    let Ok(Some(_)) = input.next_line().await else { return };
    match part.as_str() {
        "hold" => {
            let held = queue.dequeue(QUEUE, 100, LONG).await.expect("dequeued");
            println!("holds {}", held.len());
            let _ = input.next_line().await;
            drop(held);
        }
        "drain" => loop {
            let taken = queue.dequeue(QUEUE, 20, Duration::from_millis(500)).await.expect("dequeued");
            if taken.is_empty() {
                break println!("done");
            }
            for delivery in taken {
                println!("took {} {}", delivery.item().instance, delivery.attempt());
                delivery.ack_later();
            }
        },
        "enqueue" => queue.enqueue(QUEUE, &hints(1)).await.expect("queued"),
        other => panic!("{other} is no part"),
    }
    queue.stop(LONG).await.expect("stopped");
}

/// A process with a queue of its own. Ends with this value.
#[derive(Debug)]
pub struct Consumer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// # Panics
/// All methods, when the child does not do what it should.
#[allow(clippy::expect_used, clippy::panic, reason = "a part of a test")]
impl Consumer {
    /// Starts this test program to run the ignored test of this name, which [serves](serve), with this part and environment.
    pub async fn start(test: &str, part: &str, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test, "--ignored", "--nocapture"])
            .envs(environment.iter().copied())
            .env(PART, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{error}"));
        let input = child.stdin.take().unwrap_or_else(|| panic!("no input"));
        let output = child.stdout.take().unwrap_or_else(|| panic!("no output"));
        let mut consumer = Self { child, input, output: BufReader::new(output).lines() };
        consumer.says("ready").await;
        consumer
    }

    /// Gives the word.
    pub async fn go(&mut self) {
        self.input.write_all(b"go\n").await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The next line that has one of these words: the word and what follows it; `None` at the end.
    pub async fn next(&mut self, words: &[&str]) -> Option<(String, String)> {
        while let Some(line) = self.output.next_line().await.unwrap_or_else(|error| panic!("{error}")) {
            // The test harness writes to the same stream, also within a line.
            let found = words.iter().find_map(|word| line.split_once(word).map(|(_, rest)| (*word, rest)));
            if let Some((word, rest)) = found {
                return Some((word.to_owned(), rest.trim().to_owned()));
            }
        }
        None
    }

    /// Waits for this word, and gives what follows it.
    pub async fn says(&mut self, word: &str) -> String {
        self.next(&[word]).await.unwrap_or_else(|| panic!("the child ended without saying {word}")).1
    }

    /// Kills it, as by SIGKILL.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits for its end, which must be a good one.
    pub async fn ends(&mut self) {
        let status = self.child.wait().await.unwrap_or_else(|error| panic!("{error}"));
        assert!(status.success(), "the child ended with {status}");
    }
}
