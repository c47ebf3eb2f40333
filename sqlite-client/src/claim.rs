//! Claims: which processes use a file.
//!
//! A claim is an operating-system lock on a file beside the database. It ends with its process, however that ends, so
//! there is nothing to clean up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::turn::beside;
use crate::{SqliteError, SqliteErrorKind};

/// A claim on a file, held until it is dropped. Several claims of one process never exclude each other.
#[derive(Debug)]
#[must_use = "a claim ends when it is dropped"]
pub struct SqliteClaim {
    claims: Arc<Claims>,
    exclusive: bool,
}

impl SqliteClaim {
    /// Whether it keeps other processes out.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }
}

impl Drop for SqliteClaim {
    fn drop(&mut self) {
        self.claims.give_back(self.exclusive);
    }
}

/// All the claims of this process on one file. They share one open file, since the system counts its locks by that.
#[derive(Debug)]
pub(crate) struct Claims {
    database: PathBuf,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    file: Option<File>,
    shared: usize,
    exclusive: usize,
}

impl Claims {
    pub(crate) fn new(database: &Path) -> Self {
        Self { database: database.to_owned(), held: Mutex::default() }
    }

    /// Takes a claim. Blocks for as long as opening and writing a small file does.
    pub(crate) fn take(self: Arc<Self>, node: &str, exclusive: bool) -> Result<SqliteClaim, SqliteError> {
        let mut held = self.lock();
        self.strengthen(&mut held, node, exclusive)?;
        if exclusive {
            held.exclusive += 1;
        } else {
            held.shared += 1;
        }
        drop(held);
        Ok(SqliteClaim { claims: self, exclusive })
    }

    fn strengthen(&self, held: &mut Held, node: &str, exclusive: bool) -> Result<(), SqliteError> {
        if held.exclusive > 0 || (held.shared > 0 && !exclusive) {
            return Ok(());
        }
        let failed = |error| failed(&self.database, error);
        let file = match held.file.take() {
            Some(file) => file,
            None => OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(beside(&self.database, "-claim"))
                .map_err(failed)?,
        };
        // A shared lock is traded for the exclusive one; a refusal may have dropped the shared one, so that is taken again.
        let result = match try_lock(&file, exclusive).map_err(failed) {
            Ok(true) => sign(&file, node).map_err(failed),
            Ok(false) => {
                let refusal = self.refusal(&file);
                if held.shared > 0 {
                    try_lock(&file, false).map_err(failed)?;
                }
                Err(refusal)
            }
            Err(error) => Err(error),
        };
        if result.is_ok() || held.shared > 0 {
            held.file = Some(file);
        }
        result
    }

    fn give_back(&self, exclusive: bool) {
        let mut held = self.lock();
        if exclusive {
            held.exclusive -= 1;
        } else {
            held.shared -= 1;
        }
        if held.exclusive > 0 {
            return;
        }
        if held.shared == 0 {
            // Closing the file gives the lock back.
            held.file = None;
        } else if exclusive && let Some(file) = &held.file {
            // Nobody else can hold it now, so the weaker lock is granted.
            try_lock(file, false).ok();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // The state is consistent at every point where something under this lock could panic.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self, mut file: &File) -> SqliteError {
        let mut holder = String::new();
        // Where locks are mandatory the text cannot be read; the refusal stands without it.
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(1024).read_to_string(&mut holder));
        if read.is_err() || holder.trim().is_empty() {
            holder = "of unknown id".to_owned();
        }
        SqliteError::new(
            SqliteErrorKind::Claimed,
            &self.database,
            format!("the file is claimed by another process ({})", holder.trim()),
        )
    }
}

fn try_lock(file: &File, exclusive: bool) -> std::io::Result<bool> {
    let result = if exclusive { file.try_lock() } else { file.try_lock_shared() };
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Writes who we are, for those who are refused.
fn sign(mut file: &File, node: &str) -> std::io::Result<()> {
    let text = format!("process {}, node {node}", std::process::id());
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())
}

fn failed(database: &Path, error: std::io::Error) -> SqliteError {
    SqliteError::from_io(database, "claiming it by the file beside it with the ending -claim", error)
}
