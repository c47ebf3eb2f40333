//! The folder with everything lasting of a cluster: store, locks, ledger.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// The file that tells the folder from others, and keeps a second run out.
const MARK: &str = "run.lock";

/// The folder, held by this process for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _held: File,
}

impl Folder {
    /// Makes the folder if need be, and keeps other runs out of it.
    ///
    /// # Errors
    /// When another run is at work there.
    pub(crate) fn open(path: &Path, fresh: bool) -> Result<Self> {
        let shown = path.display();
        let cannot = || format!("the folder {shown} cannot be used");
        fs::create_dir_all(path).with_context(cannot)?;
        let mark = path.join(MARK);
        let is_ours = mark.try_exists().with_context(cannot)? || fs::read_dir(path).with_context(cannot)?.next().is_none();
        if fresh && !is_ours {
            bail!("{shown} holds other things than a cluster's, so --fresh removes nothing from it; choose another --dir");
        }
        let held = OpenOptions::new().create(true).truncate(false).write(true).open(&mark).with_context(cannot)?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another run is at work in {shown}; wait for it, or choose another --dir"),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        if fresh {
            empty(path).with_context(|| format!("what earlier runs left in {shown} cannot be removed"))?;
        }
        Ok(Self { path: path.to_owned(), _held: held })
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }
}

/// Removes all but the mark.
fn empty(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == MARK {
            continue;
        }
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_at_a_time_works_in_a_folder() {
        let base = tempfile::tempdir().expect("a folder");
        let path = base.path().join("deep/cluster");
        let first = Folder::open(&path, false).expect("a folder");
        let error = Folder::open(&path, false).expect_err("a second run");
        assert!(error.to_string().contains("another run is at work"), "{error}");
        drop(first);
        Folder::open(&path, false).expect("the first is gone");
    }

    #[test]
    fn a_fresh_run_removes_what_was_left_in_a_clusters_folder_and_nothing_from_others() {
        let base = tempfile::tempdir().expect("a folder");
        let path = base.path().join("cluster");
        let first = Folder::open(&path, true).expect("a folder");
        fs::create_dir_all(first.ledger().join("run-0001")).expect("a ledger");
        fs::write(path.join("orders.db"), "x").expect("a store");
        drop(first);
        Folder::open(&path, true).expect("a folder");
        let left: Vec<_> = fs::read_dir(&path).expect("readable").map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(left, [MARK]);

        fs::write(base.path().join("letter.txt"), "x").expect("written");
        let error = Folder::open(base.path(), true).expect_err("not a cluster's");
        assert!(error.to_string().contains("holds other things"), "{error}");
        assert!(base.path().join("letter.txt").exists());
    }
}
