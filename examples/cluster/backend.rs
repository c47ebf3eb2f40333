//! Where locks, queue and store live: a URL for each role, given on the command line.
//!
//! A further backend is one arm in one of the functions below, and one entry in the list of what is known beside it.

use std::{
    fmt,
    path::{Path, PathBuf, absolute},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use latchwork::{
    WorkflowHostBuilder,
    persistence_sqlite::{SqliteLeaseOptions, SqliteOptions},
    prelude::*,
    queue_sqlite::SqliteQueueOptions,
};
#[cfg(feature = "sqlserver")]
use latchwork::{persistence_sqlserver::SqlServerLeaseOptions, queue_sqlserver::SqlServerQueueOptions};

/// How long the work of a killed node stays with it. The shortest that the queue recommends, so that the take-over is seen.
const QUEUE_LEASE: Duration = Duration::from_millis(2_500);

/// How often a node renews its lease of locks; a killed one's are free after twice this, so that the take-over is seen.
const LOCK_RENEWAL: Duration = Duration::from_secs(3);

/// The URLs of SQL Server, when they are built in; else how to build them in.
const SQLSERVER: &str =
    if cfg!(feature = "sqlserver") { "sqlserver:CONNECTION-STRING" } else { "SQL Server when built with `--features sqlserver`" };

/// `scheme:rest`. The rest may hold a password and shows only where it is a path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProviderUrl {
    scheme: String,
    rest: String,
}

impl ProviderUrl {
    /// A URL whose rest is a path.
    pub(crate) fn of_path(scheme: &str, path: &Path) -> Self {
        Self { scheme: scheme.to_owned(), rest: path.display().to_string() }
    }

    /// The file, when this is a URL of one that SQLite keeps.
    pub(crate) fn sqlite_file(&self) -> Option<&Path> {
        (self.scheme == "sqlite").then(|| self.place())
    }

    /// All of it, for the nodes.
    pub(crate) fn reveal(&self) -> String {
        format!("{}:{}", self.scheme, self.rest)
    }

    /// The rest as a path; `sqlite:a.db` and `sqlite://a.db` are the same.
    fn place(&self) -> &Path {
        Path::new(self.rest.strip_prefix("//").unwrap_or(&self.rest))
    }

    /// The rest as an absolute path, so that all processes mean the same file, and the next run, too.
    fn path(&self) -> Result<PathBuf> {
        absolute(self.place()).with_context(|| format!("`{self}` names no file"))
    }
}

impl fmt::Display for ProviderUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_path = matches!(&*self.scheme, "sqlite" | "sqlite-lease" | "file");
        write!(f, "{}:{}", self.scheme, if is_path { &self.rest } else { "..." })
    }
}

impl fmt::Debug for ProviderUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ProviderUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => {
                Ok(Self { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned() })
            }
            _ => Err("it must look like `sqlite:orders.db` or `file:locks`: a scheme, a colon, and where".to_owned()),
        }
    }
}

/// The three roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backends {
    pub(crate) store: ProviderUrl,
    pub(crate) queue: ProviderUrl,
    pub(crate) lock: ProviderUrl,
}

impl Backends {
    /// Whether emptying the folder empties the store and the queue.
    ///
    /// # Errors
    /// When one of them is elsewhere.
    pub(crate) fn check_within(&self, folder: &Path) -> Result<()> {
        let folder = absolute(folder)?;
        for (role, url) in [("store", &self.store), ("queue", &self.queue)] {
            let is_within = match url.sqlite_file() {
                Some(file) => absolute(file)?.starts_with(&folder),
                None => false,
            };
            if !is_within {
                bail!("--fresh removes what is in {}, and the {role} {url} is elsewhere; remove it yourself", folder.display());
            }
        }
        Ok(())
    }

    /// Wires all three into a host. Nothing connects before the host starts.
    ///
    /// # Errors
    /// When a scheme is not known, naming those that are.
    pub(crate) fn wire(&self, builder: WorkflowHostBuilder) -> Result<WorkflowHostBuilder> {
        let builder = use_store(builder, &self.store)?;
        let builder = use_queue(builder, &self.queue)?;
        use_lock(builder, &self.lock)
    }
}

fn use_store(builder: WorkflowHostBuilder, url: &ProviderUrl) -> Result<WorkflowHostBuilder> {
    match url.scheme.as_str() {
        "sqlite" => Ok(builder.use_sqlite_persistence_with(SqliteOptions::new(url.path()?))),
        #[cfg(feature = "sqlserver")]
        "sqlserver" => Ok(builder.use_sqlserver_persistence(url.rest.as_str())),
        _ => unknown("store", url, &["sqlite:FILE", SQLSERVER]),
    }
}

fn use_queue(builder: WorkflowHostBuilder, url: &ProviderUrl) -> Result<WorkflowHostBuilder> {
    match url.scheme.as_str() {
        "sqlite" => Ok(builder.use_sqlite_queue_with(SqliteQueueOptions::new(url.path()?).with_lease(QUEUE_LEASE))),
        #[cfg(feature = "sqlserver")]
        "sqlserver" => {
            Ok(builder.use_sqlserver_queue_with(SqlServerQueueOptions::new(url.rest.as_str()).with_lease(QUEUE_LEASE)))
        }
        _ => unknown("queue", url, &["sqlite:FILE", SQLSERVER]),
    }
}

fn use_lock(builder: WorkflowHostBuilder, url: &ProviderUrl) -> Result<WorkflowHostBuilder> {
    match url.scheme.as_str() {
        "file" => Ok(builder.use_file_locking(url.path()?)),
        "sqlite-lease" => {
            let options = SqliteLeaseOptions::new(SqliteOptions::new(url.path()?)).with_renewal_period(LOCK_RENEWAL);
            Ok(builder.use_sqlite_lease_locking_with(options))
        }
        #[cfg(feature = "sqlserver")]
        "sqlserver" => Ok(builder.use_sqlserver_locking(url.rest.as_str())),
        #[cfg(feature = "sqlserver")]
        "sqlserver-lease" => {
            let options = SqlServerLeaseOptions::new(url.rest.as_str()).with_renewal_period(LOCK_RENEWAL);
            Ok(builder.use_sqlserver_lease_locking_with(options))
        }
        _ => unknown("lock", url, &["file:FOLDER", "sqlite-lease:FILE", SQLSERVER]),
    }
}

fn unknown<T>(role: &str, url: &ProviderUrl, known: &[&str]) -> Result<T> {
    bail!("--{role} {url}: this program knows no {role} `{}`; it knows {}", url.scheme, known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(store: &str, queue: &str, lock: &str) -> Backends {
        let url = |text: &str| text.parse().expect("a URL");
        Backends { store: url(store), queue: url(queue), lock: url(lock) }
    }

    #[test]
    fn a_url_is_a_scheme_and_where() {
        let url: ProviderUrl = "SQLite:/var/orders.db".parse().expect("a URL");
        assert_eq!((url.to_string().as_str(), url.sqlite_file()), ("sqlite:/var/orders.db", Some(Path::new("/var/orders.db"))));
        let slashes: ProviderUrl = "sqlite:///var/orders.db".parse().expect("a URL");
        assert_eq!(slashes.sqlite_file(), url.sqlite_file());
        assert_eq!("file:x".parse::<ProviderUrl>().expect("a URL").sqlite_file(), None);
        let secret: ProviderUrl = "sqlserver:Server=a;Password=secret".parse().expect("a URL");
        assert_eq!((secret.to_string(), format!("{secret:?}")), ("sqlserver:...".to_owned(), "sqlserver:...".to_owned()));
        assert_eq!(secret.reveal(), "sqlserver:Server=a;Password=secret");
        assert!(["orders.db", ":x", "sqlite:"].iter().all(|text| text.parse::<ProviderUrl>().is_err()));
    }

    #[test]
    fn only_what_is_in_the_folder_can_be_removed_with_it() {
        let within = |store: &str, queue: &str| backends(store, queue, "file:d/l").check_within(Path::new("d"));
        assert!(within("sqlite:d/a", "sqlite:d/a").is_ok());
        assert!(
            within("sqlite:a", "sqlite:d/a").is_err_and(|error| error.to_string().contains("the store sqlite:a is elsewhere"))
        );
        assert!(
            within("sqlite:d/a", "rabbit:d/a")
                .is_err_and(|error| error.to_string().contains("the queue rabbit:... is elsewhere"))
        );
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_those_that_are_known() {
        let refused = |backends: Backends| backends.wire(WorkflowHost::builder()).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(refused(backends("sqlite:a", "sqlite:a", "file:b")), Ok(()));
        assert_eq!(
            refused(backends("oracle:a", "sqlite:a", "file:b")),
            Err(format!("--store oracle:...: this program knows no store `oracle`; it knows sqlite:FILE, {SQLSERVER}"))
        );
        assert!(refused(backends("sqlite:a", "kafka:a", "file:b")).is_err_and(|error| error.contains("it knows sqlite:FILE")));
        assert!(
            refused(backends("sqlite:a", "sqlite:a", "zookeeper:b")).is_err_and(|error| error.contains("it knows file:FOLDER"))
        );
    }
}
