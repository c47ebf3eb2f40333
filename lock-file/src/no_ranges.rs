//! In the place of `ranges` where locks on single bytes do not belong to the open file: there is none of these values.

use crate::place::Place;
use latchwork_core::lock::LockMode;
use std::{io, path::Path};

/// This operating system cannot.
pub(crate) const SUPPORTED: bool = false;

pub(crate) enum Ranges {}
pub(crate) enum Range {}
pub(crate) enum Awaited {}

impl Ranges {
    pub(crate) fn open(_: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this operating system has no layout `ranges`; use `files`"))
    }

    pub(crate) fn try_lock(&self, _: Place, _: LockMode) -> io::Result<Option<Range>> {
        match *self {}
    }

    pub(crate) fn wait(&self, _: Place) -> Option<Awaited> {
        match *self {}
    }

    pub(crate) fn is_awaited(&self, _: Place) -> bool {
        match *self {}
    }

    pub(crate) fn are_there(&self) -> bool {
        match *self {}
    }

    pub(crate) fn reopen(&self) -> io::Result<()> {
        match *self {}
    }
}

impl Range {
    pub(crate) fn unlock(self) -> io::Result<()> {
        match self {}
    }
}

/// Not known here.
pub(crate) fn network_file_system(_: &Path) -> io::Result<Option<&'static str>> {
    Ok(None)
}
