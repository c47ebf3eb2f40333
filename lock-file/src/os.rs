//! What the operating system does: one of two layouts.

use crate::{
    files::{KeyFile, KeyFiles},
    options::Layout,
    place::Place,
    ranges::{Awaited, Range, Ranges, network_file_system},
};
use latchwork_core::lock::{LockKey, LockMode};
use std::{fs, io, path::Path};

/// The file that names the layout. Its text changes whenever two versions would not exclude each other.
const MARKER: &str = "layout";

pub(crate) enum Os {
    Ranges(Ranges),
    Files(KeyFiles),
}

/// A lock of the operating system.
pub(crate) enum Hold {
    Range(Range),
    File(KeyFile),
}

/// While it lives, other processes can see that somebody waits.
pub(crate) struct Waiting {
    _awaited: Option<Awaited>,
}

/// Makes the directory, with access for this user only, when it is missing.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Writes down the layout, or compares it with what is written there. The name of another layout is the `Ok(Err)`.
fn mark(directory: &Path, layout: Layout) -> io::Result<Result<(), String>> {
    let (marker, text) = (directory.join(MARKER), format!("latchwork file locks 1 {}\n", layout.as_str()));
    if !marker.try_exists()? {
        // Linked into place when it is complete; whoever comes second finds the first one's.
        let draft = directory.join(format!("{MARKER}.{}", draft_number()));
        fs::write(&draft, &text)?;
        let linked = fs::hard_link(&draft, &marker);
        let placed = match linked {
            Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists) => fs::rename(&draft, &marker),
            _ => fs::remove_file(&draft),
        };
        placed?;
    }
    let found = fs::read_to_string(&marker)?;
    Ok(if found == text { Ok(()) } else { Err(found.trim().to_owned()) })
}

/// Distinct among the processes that begin at the same moment.
fn draft_number() -> String {
    format!("{}-{:x}", std::process::id(), crate::turn::random())
}

impl Os {
    /// Opens a directory that is there.
    pub(crate) fn open(directory: &Path, layout: Layout) -> io::Result<Self> {
        if let Some(name) = network_file_system(directory)? {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("it lies on a network file system ({name}); name a directory on a disk of this machine"),
            ));
        }
        if let Err(found) = mark(directory, layout)? {
            let wanted = layout.as_str();
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("it is in use with `{found}`, and this process wants the layout `{wanted}`; name another directory"),
            ));
        }
        match layout {
            Layout::Files => KeyFiles::open(directory).map(Self::Files),
            Layout::Ranges => Ranges::open(directory).map(Self::Ranges),
        }
    }

    /// Whether its calls are short enough for the caller's own thread: no file is made or removed.
    pub(crate) fn is_immediate(&self) -> bool {
        !matches!(self, Self::Files(_))
    }

    /// `None` when another process has it. [`io::ErrorKind::NotFound`] when the directory was removed.
    pub(crate) fn try_lock(&self, key: &LockKey, place: Place, mode: LockMode) -> io::Result<Option<Hold>> {
        match self {
            Self::Ranges(ranges) => Ok(ranges.try_lock(place, mode)?.map(Hold::Range)),
            Self::Files(files) => Ok(files.try_lock(key, place, mode)?.map(Hold::File)),
        }
    }

    /// Lets other processes see that this one waits, where the layout can.
    pub(crate) fn wait(&self, place: Place) -> Waiting {
        let awaited = match self {
            Self::Ranges(ranges) => ranges.wait(place),
            Self::Files(_) => None,
        };
        Waiting { _awaited: awaited }
    }

    /// Whether another process is seen waiting.
    pub(crate) fn is_awaited(&self, place: Place) -> bool {
        match self {
            Self::Ranges(ranges) => ranges.is_awaited(place),
            Self::Files(_) => false,
        }
    }

    /// Whether the directory is still the one that was opened.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Ranges(ranges) => ranges.are_there(),
            Self::Files(files) => files.is_there(),
        }
    }

    /// Makes the directory anew, after it was removed.
    pub(crate) fn reopen(&self, directory: &Path) -> io::Result<()> {
        make_directory(directory)?;
        match self {
            Self::Ranges(ranges) => {
                mark(directory, Layout::Ranges)?.map_err(io::Error::other)?;
                ranges.reopen()
            }
            Self::Files(files) => {
                mark(directory, Layout::Files)?.map_err(io::Error::other)?;
                files.reopen()
            }
        }
    }
}

impl Hold {
    pub(crate) fn unlock(self) {
        let unlocked = match self {
            Self::Range(range) => range.unlock(),
            Self::File(file) => file.unlock(),
        };
        if let Err(error) = unlocked {
            // Within this process the name is free all the same; for others it is held until this process ends.
            tracing::warn!(%error, "a file lock could not be undone in full");
        }
    }
}
