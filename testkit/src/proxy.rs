//! A TCP proxy between a client and any server, which cuts, silences and delays the connections on command.
//!
//! A client that was cut off between its request and the answer does not know what became of the request. Such a moment, made with
//! a server that repeats what it hears:
//!
//! ```
//! use latchwork_testkit::proxy::{Cut, Proxy, Way};
//! use tokio::{io::{AsyncReadExt, AsyncWriteExt}, net::{TcpListener, TcpStream}};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! # let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let server = listener.local_addr()?;
//! # tokio::spawn(async move {
//! #     while let Ok((mut client, _)) = listener.accept().await {
//! #         let (mut from, mut to) = client.split();
//! #         let _ = tokio::io::copy(&mut from, &mut to).await;
//! #     }
//! # });
//! let proxy = Proxy::start(server.to_string()).await?;
//! let mut client = TcpStream::connect(proxy.address()).await?;
//!
//! proxy.hold(Way::Answers);
//! client.write_all(b"COMMIT").await?;
//! // The server has answered, so it has done what it was asked.
//! proxy.until_held(Way::Answers).await;
//! proxy.cut(Cut::Reset).await;
//! assert!(client.read_u8().await.is_err());
//! # Ok(()) }
//! ```

use std::{
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

/// Longest that a connection which was ended in order waits for its client and its server to end it too.
const PARTING: Duration = Duration::from_secs(5);
/// The most bytes that are carried as one chunk.
const CHUNK: usize = 64 * 1024;

/// A direction of travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the clients to the server.
    Requests,
    /// From the server to the clients.
    Answers,
}

/// How connections end. What is held back is lost either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In order, as when the other program ends: a FIN to both sides.
    Close,
    /// At once, as when the other machine starts anew or a firewall turns against the connection: a RST to both sides.
    Reset,
}

/// What becomes of the bytes that travel one way.
#[derive(Debug, Default)]
struct Lane {
    holds: watch::Sender<bool>,
    /// How many bytes have arrived that were not sent on.
    held: watch::Sender<usize>,
}

type Order = (Cut, oneshot::Sender<()>);

#[derive(Debug, Default)]
struct Shared {
    requests: Lane,
    answers: Lane,
    delay: Mutex<Duration>,
    refuses: AtomicBool,
    accepted: AtomicUsize,
    open: Mutex<BTreeMap<usize, oneshot::Sender<Order>>>,
}

impl Shared {
    fn lane(&self, way: Way) -> &Lane {
        match way {
            Way::Requests => &self.requests,
            Way::Answers => &self.answers,
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<usize, oneshot::Sender<Order>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self) -> MutexGuard<'_, Duration> {
        self.delay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxy. It carries until it is dropped; then all its connections close.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).field("open", &self.open()).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Proxy {
    /// Listens on a free port of the loopback address, and carries each connection to `server`, a host and a port as in
    /// `db1:1433`. Needs a Tokio runtime with input, output and time.
    ///
    /// # Errors
    /// When no port can be had. A server that cannot be reached is told to the clients: their connections are reset.
    pub async fn start(server: impl Into<String>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (shared, server) = (Arc::new(Shared::default()), server.into());
        let carrying = shared.clone();
        let listening = tokio::spawn(async move {
            // The connections end with this task.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    Ok((client, _)) = listener.accept() => {
                        connections.spawn(carry(client, server.clone(), carrying.clone()));
                    }
                    Some(_) = connections.join_next() => {}
                    else => return,
                }
            }
        });
        Ok(Self { shared, address, listening })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it carries now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open().len()
    }

    /// How many connections have come so far, those that were refused among them.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Whether new connections are reset as soon as they are there. Those that are carried go on.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuses.store(refuse, Ordering::SeqCst);
    }

    /// Carries each chunk of bytes later by so much, either way, one after the other.
    pub fn delay(&self, delay: Duration) {
        *self.shared.delay() = delay;
    }

    /// Goes silent one way, on all connections and on those to come: takes the bytes, also the end of a connection, and sends nothing on
    /// until [`carry_on`](Self::carry_on).
    pub fn hold(&self, way: Way) {
        self.shared.lane(way).holds.send_replace(true);
    }

    /// Ends the silence: what was held back is sent on, in its order.
    pub fn carry_on(&self) {
        self.shared.requests.holds.send_replace(false);
        self.shared.answers.holds.send_replace(false);
    }

    /// Resolves as soon as something is held back that travels this way. For [`Way::Answers`] this means that the server has carried
    /// a request out whose answer its client does not see.
    pub async fn until_held(&self, way: Way) {
        // The sender lives as long as `self`.
        let _ = self.shared.lane(way).held.subscribe().wait_for(|held| *held > 0).await;
    }

    /// Ends all connections that are there. Resolves when they are gone; for [`Cut::Close`], when both sides have closed theirs too, at
    /// the latest after some seconds.
    pub async fn cut(&self, how: Cut) {
        let orders = std::mem::take(&mut *self.shared.open());
        let mut ending = Vec::new();
        for order in orders.into_values() {
            let (gone, is_gone) = oneshot::channel();
            if order.send((how, gone)).is_ok() {
                ending.push(is_gone);
            }
        }
        for is_gone in ending {
            // Nothing is ever sent: the other end is dropped with the connection.
            let _ = is_gone.await;
        }
    }
}

/// Serves one connection to its end.
async fn carry(mut client: TcpStream, server: String, shared: Arc<Shared>) {
    let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
    if shared.refuses.load(Ordering::SeqCst) {
        let _ = client.set_zero_linger();
        return;
    }
    let (order, mut ordered) = oneshot::channel();
    shared.open().insert(number, order);
    let reached = tokio::select! {
        reached = TcpStream::connect(server) => reached.ok(),
        _ = &mut ordered => None,
    };
    let Some(mut server) = reached else {
        let _ = client.set_zero_linger();
        shared.open().remove(&number);
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    let mut requests = Pump::new(from_client, to_server, Way::Requests, shared.clone());
    let mut answers = Pump::new(from_server, to_client, Way::Answers, shared.clone());
    let ordered = tokio::select! {
        biased;
        order = &mut ordered => match order {
            Ok((Cut::Close, gone)) => {
                let _ = tokio::time::timeout(PARTING, async { tokio::join!(requests.part(), answers.part()) }).await;
                Some((Cut::Close, gone))
            }
            Ok(reset) => Some(reset),
            Err(_) => None,
        },
        _ = async { tokio::join!(requests.run(), answers.run()) } => None,
    };
    shared.open().remove(&number);
    drop((requests, answers));
    if let Some((Cut::Reset, _)) = ordered {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
    // Before `ordered`, so that who has ordered the end sees it when the sockets are closed.
    drop((client, server));
}

/// One way of one connection.
#[derive(Debug)]
struct Pump<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    way: Way,
    /// How many bytes have come in that have not gone out.
    waiting: AtomicUsize,
    shared: Arc<Shared>,
}

impl<'a> Pump<'a> {
    fn new(from: ReadHalf<'a>, to: WriteHalf<'a>, way: Way, shared: Arc<Shared>) -> Self {
        Self { from, to, way, waiting: AtomicUsize::new(0), shared }
    }

    /// Carries until the end, which it passes on.
    async fn run(&mut self) {
        let Self { from, to, way, waiting, shared } = self;
        let (shared, waiting) = (&**shared, &*waiting);
        let lane = shared.lane(*way);
        let (sender, mut chunks) = mpsc::unbounded_channel::<Vec<u8>>();
        let take = async move {
            loop {
                let mut chunk = Vec::with_capacity(CHUNK);
                let Ok(length @ 1..) = from.read_buf(&mut chunk).await else { return };
                waiting.fetch_add(length, Ordering::SeqCst);
                lane.held.send_modify(|held| *held += length);
                if sender.send(chunk).is_err() {
                    return;
                }
            }
        };
        let give = async move {
            let mut holds = lane.holds.subscribe();
            loop {
                let chunk = chunks.recv().await;
                let delay = *shared.delay();
                tokio::time::sleep(delay).await;
                let _ = holds.wait_for(|holds| !*holds).await;
                let Some(chunk) = chunk else { break };
                if to.write_all(&chunk).await.is_err() {
                    break;
                }
                waiting.fetch_sub(chunk.len(), Ordering::SeqCst);
                lane.held.send_modify(|held| *held -= chunk.len());
            }
            let _ = to.shutdown().await;
        };
        tokio::join!(take, give);
    }

    /// Ends it in order: says so to the receiver, and takes what the sender still says until it ends too.
    async fn part(&mut self) {
        let _ = self.to.shutdown().await;
        let mut rest = Vec::with_capacity(CHUNK);
        while let Ok(1..) = self.from.read_buf(&mut rest).await {
            rest.clear();
        }
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        let lost = *self.waiting.get_mut();
        self.shared.lane(self.way).held.send_modify(|held| *held -= lost);
    }
}
