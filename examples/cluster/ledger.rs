//! The ledger: what the steps did to the world, kept apart from the engine, so that the two can be compared.
//!
//! A folder of append-only CSV files, one for each node process. A step's body ends with one line: order, step, idempotency key, node and
//! time. A line is written by one call, so that a killed process leaves it whole or not at all. It is not forced to the disk: the
//! ledger outlives its processes, not the machine's power supply.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use latchwork::{
    StepContext,
    core::clock::{Clock, SystemClock, Timestamp},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Effect {
    /// The order's number.
    pub(crate) order: String,
    pub(crate) step: String,
    /// The idempotency key of the step: the same each time its body runs.
    pub(crate) key: String,
    /// The node that ran the body.
    pub(crate) node: String,
    pub(crate) time: Timestamp,
}

/// A node's end of the ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: Arc<File>,
    node: String,
    clock: SystemClock,
}

impl Ledger {
    /// Opens the node's file, which must be new.
    pub(crate) fn create(run: &Path, node: &str) -> Result<Self> {
        let path = run.join(format!("{node}.csv"));
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = file.with_context(|| format!("the ledger {} cannot be begun", path.display()))?;
        Ok(Self { file: Arc::new(file), node: node.to_owned(), clock: SystemClock::new() })
    }

    /// Writes down that a body has done its work for this order.
    ///
    /// # Errors
    /// When the line could not be written whole.
    pub(crate) async fn record(&self, order: &str, cx: &StepContext) -> io::Result<()> {
        let line = line(&Effect {
            order: order.to_owned(),
            step: cx.step().to_owned(),
            key: cx.idempotency_key().to_owned(),
            node: self.node.clone(),
            time: self.clock.now(),
        })?;
        let file = self.file.clone();
        tokio::task::spawn_blocking(move || {
            let written = (&*file).write(&line)?;
            if written == line.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::StorageFull)) }
        })
        .await
        .map_err(io::Error::other)?
    }
}

fn line(effect: &Effect) -> io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.serialize(effect).map_err(io::Error::other)?;
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// The ledger as a whole: the folder with a folder for each run, so that no file is continued by another process.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    folder: PathBuf,
}

impl Books {
    /// Opens the ledger of this store, or begins it.
    ///
    /// # Errors
    /// When the folder holds the ledger of another store, or none although the store holds orders already: comparing the two would
    /// say nothing.
    pub(crate) fn open(folder: &Path, store: &str, is_store_empty: bool) -> Result<Self> {
        let mark = folder.join("store");
        let in_folder = || format!("the ledger in {} cannot be opened", folder.display());
        std::fs::create_dir_all(folder).with_context(in_folder)?;
        match std::fs::read_to_string(&mark) {
            Ok(other) if other.trim() == store => {}
            Ok(_) => bail!(
                "the ledger in {} belongs to another store, which is gone or elsewhere; begin anew with --fresh, or with another --dir",
                folder.display()
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_store_empty => bail!(
                "the store holds orders already, and their ledger is not in {}; name the --dir of the runs before, or another --store",
                folder.display()
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::write(&mark, format!("{store}\n")).with_context(in_folder)?;
            }
            Err(error) => return Err(error).with_context(in_folder),
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// The folder for the files of a new run.
    pub(crate) fn begin_run(&self) -> Result<PathBuf> {
        let mut number = 1 + self.runs()?.len();
        loop {
            let run = self.folder.join(format!("run-{number:04}"));
            match std::fs::create_dir(&run) {
                Ok(()) => return Ok(run),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error).with_context(|| format!("{} cannot be made", run.display())),
            }
        }
    }

    fn runs(&self) -> io::Result<Vec<PathBuf>> {
        let mut runs = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                runs.push(entry.path());
            }
        }
        Ok(runs)
    }

    /// All that was written so far, as seen from a run.
    pub(crate) fn read(&self, run: PathBuf) -> Result<News> {
        let news = Pages::of(self.clone(), run).turn();
        news.with_context(|| format!("the ledger in {} cannot be read", self.folder.display()))
    }

    /// Tells what is written, from the beginning on, until nobody listens. The thread looks every 20 ms.
    pub(crate) fn follow(&self, run: PathBuf) -> io::Result<(Follower, mpsc::UnboundedReceiver<io::Result<News>>)> {
        let (sender, effects) = mpsc::unbounded_channel();
        let mut pages = Pages::of(self.clone(), run);
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            while !sender.is_closed() {
                let turned = pages.turn();
                let failed = turned.is_err();
                let is_news = turned.as_ref().map_or(true, |news| !news.is_empty());
                if is_news && (sender.send(turned).is_err() || failed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        })?;
        Ok((Follower { thread }, effects))
    }
}

/// What was written since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// By nodes of this run.
    pub(crate) of_this_run: Vec<Effect>,
    /// By nodes of other runs: earlier ones, or such as are about to end because their parent died.
    pub(crate) of_others: Vec<Effect>,
}

impl News {
    fn is_empty(&self) -> bool {
        self.of_this_run.is_empty() && self.of_others.is_empty()
    }
}

/// The thread that reads along. Ends when the receiver of its news is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    thread: JoinHandle<()>,
}

impl Follower {
    /// Waits for the thread to end.
    pub(crate) async fn ended(self) {
        // A panic in the thread has shown itself already: nothing more came from it.
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

/// How far each file was read.
struct Pages {
    books: Books,
    run: PathBuf,
    read_up_to: BTreeMap<PathBuf, u64>,
}

impl Pages {
    fn of(books: Books, run: PathBuf) -> Self {
        Self { books, run, read_up_to: BTreeMap::new() }
    }

    /// What was written since the last turn. A line that is not whole yet is left for the next.
    fn turn(&mut self) -> io::Result<News> {
        let mut news = News::default();
        for run in self.books.runs()? {
            let effects = if run == self.run { &mut news.of_this_run } else { &mut news.of_others };
            for entry in std::fs::read_dir(run)? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "csv") {
                    let from = self.read_up_to.entry(path.clone()).or_default();
                    *from += whole_lines(&path, *from, effects)?;
                }
            }
        }
        Ok(news)
    }
}

/// Reads the whole lines of a file from an offset on; gives their length in bytes.
fn whole_lines(path: &Path, from: u64, effects: &mut Vec<Effect>) -> io::Result<u64> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == from {
        return Ok(0);
    }
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    bytes.truncate(whole);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&bytes[..]);
    for effect in reader.deserialize() {
        let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()));
        effects.push(effect.map_err(unreadable)?);
    }
    Ok(whole as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(order: &str, key: &str) -> Effect {
        let (step, node) = ("ship".to_owned(), "node-1".to_owned());
        Effect { order: order.to_owned(), step, key: key.to_owned(), node, time: SystemClock::new().now() }
    }

    #[test]
    fn what_is_written_is_read_line_by_line_and_half_a_line_is_left_for_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let books = Books::open(folder.path(), "store-1", true).expect("books");
        let run = books.begin_run().expect("a run");
        let ledger = Ledger::create(&run, "node-1").expect("a ledger");
        let (first, second) = (effect("A-1, \"quoted\"", "i/1"), effect("A-2", "i/2"));
        let mut pages = Pages::of(books.clone(), run);
        let mut turn = || pages.turn().expect("readable").of_this_run;
        assert_eq!(turn(), []);
        let half = line(&second).expect("a line");
        (&*ledger.file).write_all(&[line(&first).expect("a line"), half[..10].to_vec()].concat()).expect("written");
        assert_eq!(turn(), std::slice::from_ref(&first));
        assert_eq!(turn(), []);
        (&*ledger.file).write_all(&half[10..]).expect("written");
        assert_eq!(turn(), std::slice::from_ref(&second));
        let all = books.read(PathBuf::new()).expect("readable");
        assert_eq!(all, News { of_this_run: Vec::new(), of_others: vec![first, second] });
    }

    #[test]
    fn each_run_has_files_of_its_own_and_a_ledger_belongs_to_one_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let books = Books::open(folder.path(), "store-1", true).expect("books");
        let runs = [books.begin_run().expect("a run"), books.begin_run().expect("another")];
        assert!(runs[0].ends_with("run-0001") && runs[1].ends_with("run-0002"), "{runs:?}");
        Ledger::create(&runs[0], "node-1").expect("a ledger");
        assert!(Ledger::create(&runs[0], "node-1").is_err(), "a file is continued by nobody");
        Ledger::create(&runs[1], "node-1").expect("a ledger");
        Books::open(folder.path(), "store-1", false).expect("the same store");
        let refused = |folder: &Path| Books::open(folder, "store-2", false).expect_err("not its ledger").to_string();
        assert!(refused(folder.path()).contains("belongs to another store"));
        assert!(refused(&folder.path().join("new")).contains("the store holds orders already"));
    }

    #[tokio::test]
    async fn a_follower_tells_what_is_written_by_this_run_and_by_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let books = Books::open(folder.path(), "store-1", true).expect("books");
        let runs = [books.begin_run().expect("a run"), books.begin_run().expect("another")];
        let [earlier, ledger] = runs.each_ref().map(|run| Ledger::create(run, "node-1").expect("a ledger"));
        let (old, new) = (effect("A-1", "i/1"), effect("A-2", "i/2"));
        (&*earlier.file).write_all(&line(&old).expect("a line")).expect("written");
        (&*ledger.file).write_all(&line(&new).expect("a line")).expect("written");
        let (follower, mut news) = books.follow(runs[1].clone()).expect("a thread");
        let told = news.recv().await.expect("news").expect("readable");
        assert_eq!(told, News { of_this_run: vec![new], of_others: vec![old] });
        drop(news);
        follower.ended().await;
    }
}
