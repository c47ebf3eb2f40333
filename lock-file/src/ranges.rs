//! Locks on single bytes of a few files. They belong to the open file (`F_OFD_SETLK`), so the kernel frees them when the
//! process is gone, however it went, and one file descriptor holds any number of them. The files stay empty: bytes beyond
//! the end of a file can be locked.

use crate::place::{Place, SHARDS};
use latchwork_core::lock::LockMode;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

/// This operating system can.
pub(crate) const SUPPORTED: bool = true;

/// Beside the byte of a lock lies one that other processes lock, shared, while they wait for it.
#[derive(Clone, Copy)]
enum Byte {
    Held = 0,
    Awaited = 1,
}

pub(crate) struct Ranges {
    directory: PathBuf,
    files: RwLock<Arc<Vec<File>>>,
}

/// A locked byte.
pub(crate) struct Range {
    files: Arc<Vec<File>>,
    place: Place,
}

/// A place among those who wait. Dropping it leaves.
pub(crate) struct Awaited {
    files: Arc<Vec<File>>,
    place: Place,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let _ = set(&self.files, self.place, Byte::Awaited, libc::F_UNLCK);
    }
}

fn open(directory: &Path) -> io::Result<Arc<Vec<File>>> {
    let open = |number| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(directory.join(format!("{number:02x}.locks")))
    };
    (0..SHARDS).map(open).collect::<io::Result<_>>().map(Arc::new)
}

fn file(files: &[File], place: Place) -> io::Result<&File> {
    files.get(usize::from(place.file)).ok_or_else(|| io::Error::other("there is no such lock file"))
}

fn range(place: Place, byte: Byte, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        // Below 2^63, because an offset is below 2^62.
        l_start: (place.offset * 2 + byte as u64) as libc::off_t,
        l_len: 1,
        // Required for locks of open files.
        l_pid: 0,
    }
}

/// Whether the byte was set to this kind of lock; `false` when another process has it.
fn set(files: &[File], place: Place, byte: Byte, kind: libc::c_int) -> io::Result<bool> {
    let file = file(files, place)?;
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&range(place, byte, kind))) {
            Ok(_) => return Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Ranges {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self { directory: directory.to_owned(), files: RwLock::new(open(directory)?) })
    }

    fn files(&self) -> Arc<Vec<File>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `None` when another process has it. [`io::ErrorKind::NotFound`] when the files were removed.
    pub(crate) fn try_lock(&self, place: Place, mode: LockMode) -> io::Result<Option<Range>> {
        let files = self.files();
        let kind = match mode {
            LockMode::Exclusive => libc::F_WRLCK,
            LockMode::Shared => libc::F_RDLCK,
        };
        if !set(&files, place, Byte::Held, kind)? {
            return Ok(None);
        }
        let range = Range { files, place };
        // After locking: a file that is still there now is the one that others lock.
        match file(&range.files, place)?.metadata() {
            Ok(metadata) if metadata.nlink() > 0 => Ok(Some(range)),
            Ok(_) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error),
        }
    }

    /// Says to the holder that somebody waits.
    pub(crate) fn wait(&self, place: Place) -> Option<Awaited> {
        let files = self.files();
        matches!(set(&files, place, Byte::Awaited, libc::F_RDLCK), Ok(true)).then_some(Awaited { files, place })
    }

    /// Whether another process waits.
    pub(crate) fn is_awaited(&self, place: Place) -> bool {
        let files = self.files();
        let mut asked = range(place, Byte::Awaited, libc::F_WRLCK);
        let answered = file(&files, place).is_ok_and(|file| fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked)).is_ok());
        answered && asked.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Whether the files are still those of the directory.
    pub(crate) fn are_there(&self) -> bool {
        self.files().iter().all(|file| file.metadata().is_ok_and(|metadata| metadata.nlink() > 0))
    }

    /// Makes the files anew.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let files = open(&self.directory)?;
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(())
    }
}

impl Range {
    pub(crate) fn unlock(self) -> io::Result<()> {
        set(&self.files, self.place, Byte::Held, libc::F_UNLCK).map(drop)
    }
}

/// The name of the file system when it is one that other machines may see, whose locks are not those of this machine alone
/// and may take a round trip.
pub(crate) fn network_file_system(directory: &Path) -> io::Result<Option<&'static str>> {
    let kind = nix::sys::statfs::fstatfs(File::open(directory)?)?.filesystem_type().0;
    // The numbers of statfs(2).
    Ok(match kind as u64 & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x7375_7245 => Some("Coda"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        _ => None,
    })
}
