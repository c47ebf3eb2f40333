use latchwork_core::name::Namespace;
use std::path::PathBuf;

/// How the locks lie in the directory. All processes that use a directory must use the same layout; it is written down
/// there, and another one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// Each name is a byte in one of 64 files, by its hash, and is locked there. A grant costs one system call and no file
    /// descriptor. Linux on x86-64, ARM64 and RISC-V.
    Ranges,
    /// Each held name is a file, and is locked as a whole. A grant costs a file that is made and removed (on Windows it
    /// stays, empty), and a file descriptor while it is held.
    Files,
}

impl Layout {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ranges => "ranges",
            Self::Files => "files",
        }
    }
}

impl Default for Layout {
    /// The fastest one of this operating system.
    fn default() -> Self {
        if crate::ranges::SUPPORTED { Self::Ranges } else { Self::Files }
    }
}

/// How file locks are opened.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to `FileLocks::open_with`"]
#[non_exhaustive]
pub struct FileLockOptions {
    /// The directory. Made when it is missing, then with access for this user only.
    pub directory: PathBuf,
    /// Where names are made. Default `wfc`.
    pub namespace: Namespace,
    /// How the locks lie in the directory. Default: the fastest one of this operating system.
    pub layout: Layout,
}

impl FileLockOptions {
    /// Locks in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), namespace: Namespace::default(), layout: Layout::default() }
    }

    /// Makes keys in this namespace.
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// With this layout.
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }
}
