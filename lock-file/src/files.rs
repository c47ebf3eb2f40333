//! One file per held name, locked as a whole. The file is removed by its last holder while it is locked; whoever locks one
//! therefore looks whether it is still the one that the name leads to.

use crate::place::Place;
use latchwork_core::lock::{LockKey, LockMode};
use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Bytes of the readable head of a file's name.
const HEAD: usize = 100;
/// Tries when files are removed under our hands, before it is called contention.
const TRIES: usize = 16;

pub(crate) struct KeyFiles {
    directory: PathBuf,
    /// What the directory was when it was opened.
    identity: Mutex<Option<Identity>>,
}

/// A locked file.
#[derive(Debug)]
pub(crate) struct KeyFile {
    file: File,
    path: PathBuf,
    mode: LockMode,
}

/// Device and number of a file; where there is no such thing, when it was made.
#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = Option<std::time::SystemTime>;

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(metadata: &Metadata) -> Identity {
    metadata.created().ok()
}

/// Readable head, and a hash: distinct also where capitals and small letters are one, and never too long.
fn file_name(key: &LockKey, place: Place) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    let head: String = key.as_str().chars().take(HEAD).map(plain).collect();
    format!("{head}~{}.lock", place.hex())
}

/// Whether the path still leads to this file.
fn leads_to(path: &Path, file: &File) -> io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(identity(&metadata) == identity(&file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the lock was taken.
fn lock(file: &File, mode: LockMode) -> io::Result<bool> {
    let locked = match mode {
        LockMode::Exclusive => file.try_lock(),
        LockMode::Shared => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl KeyFiles {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let opened = Self { directory: directory.to_owned(), identity: Mutex::new(None) };
        opened.reopen()?;
        Ok(opened)
    }

    /// `None` when another process has it. [`io::ErrorKind::NotFound`] when the directory was removed.
    pub(crate) fn try_lock(&self, key: &LockKey, place: Place, mode: LockMode) -> io::Result<Option<KeyFile>> {
        if !self.is_there() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let path = self.directory.join(file_name(key, place));
        for _ in 0..TRIES {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            if !lock(&file, mode)? {
                return Ok(None);
            }
            if leads_to(&path, &file)? {
                return Ok(Some(KeyFile { file, path, mode }));
            }
        }
        Ok(None)
    }

    /// Whether the directory is still the one that was opened.
    pub(crate) fn is_there(&self) -> bool {
        let found = std::fs::metadata(&self.directory).ok().map(|metadata| identity(&metadata));
        found.is_some() && found == *self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the directory as it is now.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let metadata = std::fs::metadata(&self.directory)?;
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity(&metadata));
        Ok(())
    }
}

impl KeyFile {
    /// Frees the lock, and removes the file when nobody else holds it. Only where files can be told apart, or a new file of
    /// the same name would be taken for the old one.
    pub(crate) fn unlock(self) -> io::Result<()> {
        if !cfg!(unix) {
            return self.file.unlock();
        }
        if self.mode == LockMode::Shared {
            self.file.unlock()?;
            if !lock(&self.file, LockMode::Exclusive)? {
                return Ok(());
            }
        }
        // Locked alone, so nobody else removes it; should a stranger have done so, what is there now is not ours.
        if leads_to(&self.path, &self.file)? {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_core::name::Namespace;

    #[test]
    fn a_file_is_named_readably_and_apart_from_its_look_alikes() {
        let name = |name: &str| {
            let key = LockKey::new(&Namespace::default(), name).expect("a valid name");
            file_name(&key, Place::of(&key))
        };
        assert!(name("Order-1/ä").starts_with("wfc_Order-1__~"), "{}", name("Order-1/ä"));
        assert_ne!(name("a/b").to_lowercase(), name("a_b").to_lowercase());
        assert_ne!(name("ab").to_lowercase(), name("aB").to_lowercase());
        assert!(name(&"x".repeat(4096)).len() <= 200);
        assert!(name("..").chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c)));
    }

    #[test]
    fn a_file_that_is_removed_between_opening_and_locking_is_not_a_lock() {
        use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
        let folder = tempfile::tempdir().expect("a folder");
        let key = LockKey::new(&Namespace::default(), "x").expect("a valid name");
        let (inside, grants) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let files = KeyFiles::open(folder.path()).expect("opened");
                    for _ in 0..4_000 {
                        let Some(file) = files.try_lock(&key, Place::of(&key), LockMode::Exclusive).expect("answered") else {
                            continue;
                        };
                        assert!(!inside.swap(true, SeqCst), "two hold one name");
                        grants.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        inside.store(false, SeqCst);
                        file.unlock().expect("freed");
                    }
                });
            }
        });
        assert!(grants.load(SeqCst) > 100, "hardly anybody was granted");
    }
}
