//! Claims: which processes use a file.
//!
//! A claim is an operating-system lock on a file beside the database. It ends with its process, however that ends, so
//! there is nothing to clean up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::turn::beside;
use crate::{SqliteError, SqliteErrorKind};

/// What this process holds.
#[derive(Debug)]
pub(crate) struct Claim {
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    file: File,
    exclusive: bool,
}

impl Claim {
    pub(crate) fn none() -> Self {
        Self { held: None }
    }

    /// Makes the claim at least as strong as asked for. What was held before is kept when that fails.
    pub(crate) fn strengthen(self, database: &Path, node: Option<&str>, exclusive: bool) -> (Self, Result<(), SqliteError>) {
        match self.held {
            Some(held) if held.exclusive || !exclusive => (Self { held: Some(held) }, Ok(())),
            Some(held) => {
                // The system trades the shared lock for the exclusive one, and may drop the shared one on refusal.
                match lock(&held.file, true) {
                    Ok(true) => {
                        let result = sign(&held.file, database, node);
                        let held = Held { exclusive: true, ..held };
                        (Self { held: Some(held) }, result)
                    }
                    Ok(false) => {
                        let refused = refusal(&held.file, database);
                        match lock(&held.file, false) {
                            Ok(true) => (Self { held: Some(held) }, Err(refused)),
                            _ => (Self::none(), Err(refused)),
                        }
                    }
                    Err(error) => (Self { held: Some(held) }, Err(failed(database, error))),
                }
            }
            None => match take(database, node, exclusive) {
                Ok(held) => (Self { held: Some(held) }, Ok(())),
                Err(error) => (Self::none(), Err(error)),
            },
        }
    }
}

fn take(database: &Path, node: Option<&str>, exclusive: bool) -> Result<Held, SqliteError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(beside(database, "-claim"))
        .map_err(|error| failed(database, error))?;
    match lock(&file, exclusive) {
        Ok(true) => {}
        Ok(false) => return Err(refusal(&file, database)),
        Err(error) => return Err(failed(database, error)),
    }
    sign(&file, database, node)?;
    Ok(Held { file, exclusive })
}

fn lock(file: &File, exclusive: bool) -> std::io::Result<bool> {
    let result = if exclusive { file.try_lock() } else { file.try_lock_shared() };
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Writes who we are, for those who are refused.
fn sign(mut file: &File, database: &Path, node: Option<&str>) -> Result<(), SqliteError> {
    let mut text = format!("process {}", std::process::id());
    if let Some(node) = node {
        text.push_str(&format!(", node {node}"));
    }
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(text.as_bytes()))
        .map_err(|error| failed(database, error))
}

fn refusal(mut file: &File, database: &Path) -> SqliteError {
    let mut holder = String::new();
    // Where locks are mandatory the text cannot be read; the refusal stands without it.
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(1024).read_to_string(&mut holder));
    if read.is_err() || holder.trim().is_empty() {
        holder = "an unknown process".to_owned();
    }
    SqliteError::new(SqliteErrorKind::Claimed, database, format!("the file is claimed by another process ({})", holder.trim()))
}

fn failed(database: &Path, error: std::io::Error) -> SqliteError {
    SqliteError::from_io(database, "claiming it by the file beside it with the ending -claim", error)
}
