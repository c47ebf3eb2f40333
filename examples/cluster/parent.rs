//! The parent process: starts the nodes and the orders, packs, kills, waits, and audits.

use std::{
    fs::File,
    path::PathBuf,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use latchwork::{
    HostError, WorkflowHostBuilder,
    prelude::*,
    store::{IdentityOutcome, InstanceQuery},
};
use tokio::{
    sync::mpsc,
    task::{JoinSet, block_in_place},
    time::{MissedTickBehavior, interval},
};

use crate::{
    arguments::RunArguments,
    audit::audit,
    backend::Backends,
    display::Display,
    fleet::{Fate, Fleet},
    folder::Folder,
    fulfilment::{FulfilOrder, HAND_OVER, Order},
    ledger::{Books, Effect, News},
    orders::{self, OrderFile, OrderLine},
    patience::patiently,
    progress::Progress,
    report::{NodeLine, Report},
    warehouse,
};

/// Orders that are started at the same time.
const STARTS_AT_ONCE: usize = 64;
/// How often the store is asked whether all have ended.
const LOOK: Duration = Duration::from_millis(100);

/// What a run needs, found out before anything starts.
#[derive(Debug)]
pub(crate) struct Plan {
    nodes: u32,
    kills: u32,
    with_bars: bool,
    orders: Vec<OrderLine>,
    backends: Backends,
    namespace: Namespace,
    host: WorkflowHostBuilder,
    folder: Folder,
}

impl Plan {
    /// Reads the orders and opens the folder. Bad lines are told on standard error.
    pub(crate) fn make(arguments: &RunArguments) -> Result<Self> {
        let folder = arguments.folder();
        let backends = arguments.backends(&folder);
        let namespace = arguments.namespace.clone();
        let host = backends.wire(WorkflowHost::builder())?.namespace(namespace.clone());
        let orders = read_orders(arguments)?;
        if arguments.fresh {
            backends.check_within(&folder)?;
        }
        let folder = Folder::open(&folder, arguments.fresh)?;
        let RunArguments { nodes, kill: kills, json, .. } = *arguments;
        Ok(Self { nodes, kills, with_bars: !json, orders, backends, namespace, host, folder })
    }
}

fn read_orders(arguments: &RunArguments) -> Result<Vec<OrderLine>> {
    let (name, file) = match &arguments.orders {
        None => ("the built-in orders".to_owned(), orders::read(orders::BUILT_IN.as_bytes())),
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
            (path.display().to_string(), orders::read(file))
        }
    };
    let OrderFile { mut orders, bad_lines } = file.with_context(|| format!("no orders can be read from {name}"))?;
    for bad in bad_lines {
        eprintln!("{name}, line {}: left out: {}", bad.line, bad.reason);
    }
    orders.truncate(arguments.limit.unwrap_or(usize::MAX));
    if orders.is_empty() {
        bail!("there is no order to work on in {name}");
    }
    Ok(orders)
}

/// How a run came to its end.
#[derive(Debug)]
pub(crate) enum Conclusion {
    /// All orders have ended.
    Finished(Box<Report>),
    /// The user said so. All processes have stopped; the next run goes on.
    Interrupted,
}

/// Runs the cluster until all orders have ended, or the user interrupts it.
pub(crate) async fn run(plan: Plan) -> Result<Conclusion> {
    let interrupt = interrupt()?;
    let Plan { nodes, kills, with_bars, orders, backends, namespace, host, folder } = plan;
    // This host starts workflows, publishes events and answers questions; it runs none.
    let host = host.node_id("parent").configure(|options| options.run_workflows = false).workflow(FulfilOrder).start();
    let host = host.await.context("the cluster cannot be reached")?;
    let concluded = async {
        let (cluster, is_empty) = (cluster_of(&host, &namespace).await?, is_empty(&host).await?);
        let books = Books::open(&folder.ledger(), &cluster, is_empty)?;
        let ledger = books.begin_run()?;
        let fleet = Fleet::new(backends, namespace, ledger.clone())?;
        let run = Run { host: host.clone(), nodes, kills, killed: 0, display: Display::new(with_bars), fleet, books, ledger };
        run.conclude(orders, interrupt).await
    };
    let concluded = concluded.await;
    let stopped = host.stop().await.context("the parent did not stop cleanly");
    let conclusion = concluded?;
    stopped?;
    Ok(conclusion)
}

/// The id of the cluster, which its store has drawn.
async fn cluster_of(host: &WorkflowHost, namespace: &Namespace) -> Result<String, HostError> {
    let domain = host.locks().capabilities().domain;
    let identity = patiently(|| async { Ok(host.store().claim_identity(namespace.as_str(), &domain, false).await?) });
    let (IdentityOutcome::Accepted(identity) | IdentityOutcome::Differs(identity)) = identity.await?;
    Ok(identity.cluster)
}

/// Whether no order was ever started in the store.
async fn is_empty(host: &WorkflowHost) -> Result<bool, HostError> {
    let first = InstanceQuery::new().with_definition(FulfilOrder::ID).with_limit(1);
    Ok(patiently(|| host.find(&first)).await?.items.is_empty())
}

/// Resolves at the first Ctrl-C or SIGTERM.
fn interrupt() -> Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        let terminated = terminate.recv();
        #[cfg(not(unix))]
        let terminated = std::future::pending::<()>();
        tokio::select! {
            Ok(()) = tokio::signal::ctrl_c() => {}
            _ = terminated => {}
        }
    })
}

struct Run {
    host: WorkflowHost,
    nodes: u32,
    kills: u32,
    killed: u32,
    display: Display,
    fleet: Fleet,
    books: Books,
    /// The folder of this run's files.
    ledger: PathBuf,
}

/// What ends the work.
enum Ending {
    AllEnded,
    Interrupted,
}

/// What was done beside.
enum Beside {
    AllStarted { known_before: usize },
    WarehouseClosed,
}

impl Run {
    /// Works, stops the nodes, and draws the conclusion.
    async fn conclude(mut self, orders: Vec<OrderLine>, interrupt: impl Future<Output = ()>) -> Result<Conclusion> {
        let began = Instant::now();
        let ids: Vec<String> = orders.iter().map(|order| order.id.clone()).collect();
        let ended = self.work(orders, interrupt).await;
        let seconds = began.elapsed().as_secs_f64();
        if matches!(ended, Ok(Ending::Interrupted)) {
            self.display.note("stopping; once more Ctrl-C stops at once");
            tokio::spawn(async {
                if tokio::signal::ctrl_c().await.is_ok() {
                    // The nodes find their standard input closed, and stop by themselves.
                    std::process::exit(130);
                }
            });
        }
        self.fleet.stop().await;
        self.display.end();
        match ended? {
            Ending::Interrupted => Ok(Conclusion::Interrupted),
            Ending::AllEnded => {
                let report = self.audit(&ids, seconds).await?;
                Ok(Conclusion::Finished(Box::new(report)))
            }
        }
    }

    /// Starts nodes and orders, and does what the parent has to do until all orders have ended.
    async fn work(&mut self, orders: Vec<OrderLine>, interrupt: impl Future<Output = ()>) -> Result<Ending> {
        let mut progress = Progress::of(orders.iter().map(|order| order.id.clone()).collect());
        let count = orders.len();
        self.display.show(&progress);
        for _ in 0..self.nodes {
            self.start_node()?;
        }
        self.display.note(&format!("{count} orders, {} nodes", self.nodes));

        let (follower, mut news) = self.books.follow(self.ledger.clone()).context("the ledger cannot be followed")?;
        let (handed_over, list) = mpsc::unbounded_channel();
        // Both end with this function, whatever it comes to.
        let mut beside = JoinSet::new();
        let host = self.host.clone();
        beside.spawn(async { start_orders(host, orders).await.map(|known_before| Beside::AllStarted { known_before }) });
        let host = self.host.clone();
        beside.spawn(async { warehouse::run(host, list).await.map(|()| Beside::WarehouseClosed) });

        let mut interrupt = pin!(interrupt);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut all_started = false;
        let ending = loop {
            tokio::select! {
                () = &mut interrupt => break Ending::Interrupted,
                Some((name, fate)) = self.fleet.next_end() => self.node_ended(&name, fate)?,
                Some(done) = beside.join_next() => match done.context("a task of the parent failed")?? {
                    Beside::AllStarted { known_before } => {
                        all_started = true;
                        if known_before > 0 {
                            self.display.note(&format!("{known_before} of {count} orders were started by an earlier run; going on with them"));
                        }
                    }
                    Beside::WarehouseClosed => {}
                },
                Some(read) = news.recv() => {
                    let news = read.context("the ledger cannot be read")?;
                    take(news, &mut progress, &handed_over);
                    self.kill_on_the_way(&progress)?;
                }
                _ = look.tick() => {
                    self.display.show(&progress);
                    if all_started && patiently(|| self.host.statistics()).await?.runnable == 0 {
                        break Ending::AllEnded;
                    }
                }
            }
        };
        drop(news);
        follower.ended().await;
        Ok(ending)
    }

    fn start_node(&mut self) -> Result<String> {
        let member = self.fleet.start()?;
        self.display.node_started(&member.name);
        Ok(member.name.clone())
    }

    fn node_ended(&mut self, name: &str, fate: Fate) -> Result<()> {
        self.display.node_ended(name, &fate.to_string());
        if fate != Fate::Killed {
            self.display.note(&format!("{name} {fate}, which nobody asked for; the others go on"));
        }
        if self.fleet.running() == 0 {
            bail!("no node is left to do the work; the next run goes on where this one stopped");
        }
        Ok(())
    }

    /// Kills nodes at equal distances, one for one new: half-way, when there is one to kill.
    fn kill_on_the_way(&mut self, progress: &Progress) -> Result<()> {
        while self.killed < self.kills && progress.has_reached(self.killed + 1, self.kills + 1) {
            let Some(victim) = self.fleet.kill_one() else { return Ok(()) };
            self.killed += 1;
            let (name, process) = (victim.name.clone(), victim.process.map(|id| format!(" (process {id})")).unwrap_or_default());
            let successor = self.start_node()?;
            let (steps, all) = (progress.steps(), progress.steps_to_do());
            self.display.note(&format!("after {steps} of {all} steps: {name}{process} killed with SIGKILL, {successor} started"));
        }
        Ok(())
    }

    async fn audit(&self, orders: &[String], seconds: f64) -> Result<Report> {
        let news = block_in_place(|| self.books.read(self.ledger.clone()))?;
        let mut progress = Progress::of(orders.iter().cloned().collect());
        news.of_others.iter().for_each(|effect| progress.add_earlier(effect));
        news.of_this_run.iter().for_each(|effect| progress.add(effect));
        let ledger: Vec<Effect> = news.of_others.into_iter().chain(news.of_this_run).collect();
        let findings = audit(&self.host, orders, &ledger).await?;
        let nodes = self.fleet.members().iter().map(|member| {
            let progress = progress.of_node(&member.name);
            NodeLine { name: member.name.clone(), fate: member.fate, progress }
        });
        let mut report = Report::new(orders.len(), findings, nodes.collect(), seconds, progress.steps());
        if self.killed < self.kills {
            let (killed, kills) = (self.killed, self.kills);
            report.remark(format!(
                "only {killed} of {kills} nodes were killed: there was too little left to do. --fresh begins anew"
            ));
        }
        Ok(report)
    }
}

/// Starts a workflow for each order that has none yet; how many had one.
async fn start_orders(host: WorkflowHost, orders: Vec<OrderLine>) -> Result<usize> {
    let starting = orders.into_iter().map(|order| {
        let host = &host;
        async move {
            let start = async || host.start_workflow::<FulfilOrder>(Order::from(order.clone())).business_key(&order.id).await;
            let started = patiently(start).await.with_context(|| format!("order {} could not be started", order.id))?;
            anyhow::Ok(usize::from(!started.was_created()))
        }
    });
    stream::iter(starting).buffer_unordered(STARTS_AT_ONCE).try_fold(0, async |sum, known| Ok(sum + known)).await
}

/// Counts what was done, and hands on what is to be packed. Of earlier runs' orders only those that are still on their way.
fn take(news: News, progress: &mut Progress, handed_over: &mpsc::UnboundedSender<Effect>) {
    let News { of_this_run, of_others } = news;
    of_others.iter().for_each(|effect| progress.add_earlier(effect));
    of_this_run.iter().for_each(|effect| progress.add(effect));
    let to_pack = of_others.into_iter().chain(of_this_run).filter(|effect| effect.step == HAND_OVER);
    for effect in to_pack.filter(|effect| !progress.is_shipped(&effect.order)).collect::<Vec<_>>() {
        // A warehouse that has closed has said why.
        let _ = handed_over.send(effect);
    }
}
