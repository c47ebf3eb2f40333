//! A node process: runs workflows until its parent closes its standard input, which also happens when the parent dies.

use std::{io::Read, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use latchwork::prelude::*;
use tokio::sync::oneshot;

use crate::{
    arguments::{LOCK, QUEUE, STORE, namespace},
    backend::{Backends, ProviderUrl},
    fulfilment::FulfilOrder,
    ledger::Ledger,
    shop::{Carrier, Payments, Stock},
};

/// How often a node looks for work whose hint was lost, for example with a killed node. Short, so that the take-over is seen.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long running steps may take to finish at a stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What a node is told by its parent.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeArguments {
    /// Its name in the cluster.
    #[arg(long)]
    pub(crate) name: String,
    /// The folder of this run's ledger.
    #[arg(long)]
    pub(crate) ledger: PathBuf,
    #[arg(long, env = STORE)]
    pub(crate) store: ProviderUrl,
    #[arg(long, env = QUEUE)]
    pub(crate) queue: ProviderUrl,
    #[arg(long, env = LOCK)]
    pub(crate) lock: ProviderUrl,
    #[arg(long, value_parser = namespace)]
    pub(crate) namespace: Namespace,
}

/// Runs the node.
pub(crate) async fn run(arguments: NodeArguments, ledger: Ledger) -> Result<()> {
    // Asked for before anything else, so that no moment is left in which Ctrl-C, which reaches all processes of a terminal, would
    // end the node at once instead of cleanly.
    let told_to_stop = told_to_stop()?;
    let NodeArguments { name, store, queue, lock, namespace, .. } = arguments;
    let backends = Backends { store, queue, lock };
    let host = backends
        .wire(WorkflowHost::builder())?
        .namespace(namespace)
        .node_id(name.as_str())
        .poll_interval(POLL_INTERVAL)
        .stop_grace(STOP_GRACE)
        .service(ledger)
        .service(Stock)
        .service(Payments)
        .service(Carrier)
        .workflow(FulfilOrder)
        .start()
        .await
        .with_context(|| format!("{name} could not be started"))?;
    told_to_stop.await;
    let report = host.stop().await.with_context(|| format!("{name} did not stop cleanly"))?;
    for (instance, steps) in report.unfinished {
        eprintln!("{name}: instance {instance} is left unfinished in {steps:?}");
    }
    Ok(())
}

/// Resolves when the parent closes standard input, or at SIGTERM. Ctrl-C is left to the parent.
fn told_to_stop() -> Result<impl Future<Output = ()>> {
    let (closed, input_is_closed) = oneshot::channel::<()>();
    // A thread of its own: the runtime would wait for its own readers of standard input when it ends.
    std::thread::Builder::new().name("standard input".to_owned()).spawn(move || {
        let mut ignored = [0_u8; 64];
        while std::io::stdin().read(&mut ignored).is_ok_and(|read| read > 0) {}
        drop(closed);
    })?;
    // Asking for Ctrl-C once takes its deadly effect away for the life of the process.
    let ignored = tokio::signal::ctrl_c();
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        let ignored = async {
            let _ = ignored.await;
            std::future::pending::<()>().await;
        };
        #[cfg(unix)]
        let terminated = terminate.recv();
        #[cfg(not(unix))]
        let terminated = std::future::pending::<()>();
        tokio::select! {
            () = ignored => {}
            _ = input_is_closed => {}
            _ = terminated => {}
        }
    })
}
