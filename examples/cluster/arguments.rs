//! The command line.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, value_parser};

use latchwork::{name::InvalidName, prelude::*};

use crate::{
    backend::{Backends, ProviderUrl},
    node::NodeArguments,
};

/// Where the parent's URLs stand for its nodes: they may hold passwords, and everybody sees the arguments of a process.
pub(crate) const STORE: &str = "LATCHWORK_CLUSTER_STORE";
pub(crate) const QUEUE: &str = "LATCHWORK_CLUSTER_QUEUE";
pub(crate) const LOCK: &str = "LATCHWORK_CLUSTER_LOCK";

/// A namespace as an argument.
pub(crate) fn namespace(name: &str) -> Result<Namespace, InvalidName> {
    Namespace::new(name)
}

/// A durable cluster on this machine: node processes run a workflow for each order of a file, some nodes are killed, and in the end
/// an audit compares what the steps did with what the store says.
///
/// Everything lasting is in one folder. Ctrl-C stops cleanly; the next run with the same folder goes on where this one stopped, and
/// starts no order twice.
///
/// The exit status is 0 when nothing was lost and nothing was done twice, 1 when something was, or when the run could not be begun or
/// ended, 2 for an option that cannot be read, and 130 after Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "cluster", disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) process: Option<Process>,
    #[command(flatten)]
    pub(crate) run: RunArguments,
}

/// What this process is, if not the parent.
#[derive(Debug, Subcommand)]
pub(crate) enum Process {
    /// A node of the cluster; started by the parent.
    #[command(hide = true)]
    Node(NodeArguments),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArguments {
    /// How many node processes run at the same time
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) nodes: u32,
    /// A CSV file with the columns id, customer, sku, quantity, unit_price_cents, country [default: 1,000 built-in orders]
    #[arg(long, value_name = "FILE")]
    pub(crate) orders: Option<PathBuf>,
    /// Only the first N orders
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// How many nodes to kill with SIGKILL on the way; each is replaced by a new one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) kill: u32,
    /// The folder for store, locks and ledger [default: latchwork-cluster, or the store's FILE.cluster]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
    /// The store: sqlite:FILE, or sqlserver:CONNECTION-STRING [default: orders.db in the folder]
    #[arg(long, value_name = "URL", env = STORE, hide_env_values = true)]
    pub(crate) store: Option<ProviderUrl>,
    /// The queue: sqlite:FILE, or sqlserver:CONNECTION-STRING [default: the store's file, or a file in the folder]
    #[arg(long, value_name = "URL", env = QUEUE, hide_env_values = true)]
    pub(crate) queue: Option<ProviderUrl>,
    /// The locks: file:FOLDER, or sqlserver:CONNECTION-STRING [default: locks in the folder]
    #[arg(long, value_name = "URL", env = LOCK, hide_env_values = true)]
    pub(crate) lock: Option<ProviderUrl>,
    /// The namespace; clusters of different ones share a server undisturbed
    #[arg(long, value_name = "NAME", default_value_t, value_parser = namespace)]
    pub(crate) namespace: Namespace,
    /// Begin anew: remove what earlier runs left in the folder
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Print one line of JSON at the end, and no progress bars
    #[arg(long)]
    pub(crate) json: bool,
}

impl RunArguments {
    /// Where everything lasting is kept, in the current folder if nothing else was said, so that the next run finds it.
    pub(crate) fn folder(&self) -> PathBuf {
        match (&self.dir, self.store.as_ref().and_then(ProviderUrl::sqlite_file)) {
            (Some(folder), _) => folder.clone(),
            (None, Some(file)) => {
                let mut folder = file.as_os_str().to_owned();
                folder.push(".cluster");
                folder.into()
            }
            (None, None) => "latchwork-cluster".into(),
        }
    }

    /// The three roles, with what is left unsaid in this folder.
    pub(crate) fn backends(&self, folder: &Path) -> Backends {
        let store = self.store.clone().unwrap_or_else(|| ProviderUrl::of_path("sqlite", &folder.join("orders.db")));
        let queue = self.queue.clone().unwrap_or_else(|| match store.sqlite_file() {
            Some(_) => store.clone(),
            None => ProviderUrl::of_path("sqlite", &folder.join("queue.db")),
        });
        let lock = self.lock.clone().unwrap_or_else(|| ProviderUrl::of_path("file", &folder.join("locks")));
        Backends { store, queue, lock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parsed(line: &str) -> RunArguments {
        Arguments::try_parse_from(std::iter::once("cluster").chain(line.split_whitespace())).expect("arguments").run
    }

    fn places(arguments: &RunArguments) -> [String; 4] {
        let folder = arguments.folder();
        let Backends { store, queue, lock } = arguments.backends(&folder);
        [folder.display().to_string(), store.to_string(), queue.to_string(), lock.to_string()]
    }

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn all_is_in_one_folder_that_the_next_run_finds_unless_something_else_is_said() {
        let default = places(&parsed(""));
        let file = |name: &str| Path::new("latchwork-cluster").join(name).display().to_string();
        let (db, locks) = (format!("sqlite:{}", file("orders.db")), format!("file:{}", file("locks")));
        assert_eq!(default, ["latchwork-cluster".to_owned(), db.clone(), db, locks]);
        let store = places(&parsed("--store sqlite:shop.db"));
        assert_eq!([&store[0], &store[1], &store[2]], ["shop.db.cluster", "sqlite:shop.db", "sqlite:shop.db"]);
        let all = places(&parsed("--dir d --store sqlite:s --queue sqlite:q --lock file:l"));
        assert_eq!(all, ["d", "sqlite:s", "sqlite:q", "file:l"]);
    }
}
