//! The proxy between a client and a server that repeats what it hears.
#![cfg(feature = "proxy")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_testkit::proxy::{Cut, Proxy, Way};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

/// Never waited out by a proxy that is right.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for what must not happen to happen, most times; it can only miss a fault, never find one that is not there.
const A_WHILE: Duration = Duration::from_millis(100);

/// Repeats what it hears, counts the bytes, and tells how each connection ended.
struct Echo {
    address: SocketAddr,
    heard: Arc<AtomicUsize>,
    ends: mpsc::UnboundedReceiver<io::Result<()>>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, heard) = (listener.local_addr().expect("an address"), Arc::new(AtomicUsize::new(0)));
        let (told, ends) = mpsc::unbounded_channel();
        let counted = heard.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (told, counted) = (told.clone(), counted.clone());
                tokio::spawn(async move {
                    let mut bytes = [0; 1024];
                    let end = loop {
                        match client.read(&mut bytes).await {
                            Ok(0) => break Ok(()),
                            Ok(count) => {
                                counted.fetch_add(count, Ordering::SeqCst);
                                if let Err(error) = client.write_all(&bytes[..count]).await {
                                    break Err(error);
                                }
                            }
                            Err(error) => break Err(error),
                        }
                    };
                    let _ = told.send(end);
                });
            }
        });
        Self { address, heard, ends }
    }

    async fn end(&mut self) -> io::Result<()> {
        timeout(PATIENCE, self.ends.recv()).await.expect("told in time").expect("the server lives")
    }

    fn heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }
}

async fn both() -> (Echo, Proxy) {
    let echo = Echo::start().await;
    let proxy = Proxy::start(echo.address.to_string()).await.expect("started");
    (echo, proxy)
}

async fn client(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.expect("reached")
}

async fn say(client: &mut TcpStream, words: &str) {
    client.write_all(words.as_bytes()).await.expect("said");
}

async fn hear(client: &mut TcpStream, words: &str) {
    let mut bytes = vec![0; words.len()];
    timeout(PATIENCE, client.read_exact(&mut bytes)).await.expect("in time").expect("heard");
    assert_eq!(bytes, words.as_bytes());
}

async fn hears_nothing(client: &mut TcpStream) {
    assert!(timeout(A_WHILE, client.read_u8()).await.is_err());
}

#[tokio::test]
async fn it_carries_both_ways_and_passes_the_end_on() {
    let (mut echo, proxy) = both().await;
    let (mut one, mut other) = (client(&proxy).await, client(&proxy).await);
    let long = "word ".repeat(100_000);
    let (mut from, mut to) = one.split();
    let (said, heard) = tokio::join!(to.write_all(long.as_bytes()), async {
        let mut bytes = vec![0; long.len()];
        from.read_exact(&mut bytes).await.map(|_| bytes)
    });
    said.expect("said");
    assert!(heard.expect("heard") == long.as_bytes());
    say(&mut other, "hello").await;
    hear(&mut other, "hello").await;
    assert_eq!((proxy.open(), proxy.accepted()), (2, 2));
    drop(other);
    assert!(echo.end().await.is_ok());
    say(&mut one, "still here").await;
    hear(&mut one, "still here").await;
    one.shutdown().await.expect("shut down");
    assert_eq!(one.read(&mut [0]).await.expect("the end"), 0);
    assert!(echo.end().await.is_ok());
}

#[tokio::test]
async fn a_cut_ends_all_connections_in_the_way_that_was_asked_for() {
    let (mut echo, proxy) = both().await;
    for how in [Cut::Close, Cut::Reset] {
        let mut clients = [client(&proxy).await, client(&proxy).await];
        for client in &mut clients {
            say(client, "hello").await;
            hear(client, "hello").await;
        }
        let ending = async {
            for client in &mut clients {
                match (how, timeout(PATIENCE, client.read(&mut [0])).await.expect("told")) {
                    (Cut::Close, Ok(0)) => client.shutdown().await.expect("shut down"),
                    (Cut::Reset, Err(error)) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
                    (how, told) => panic!("{how:?} is told as {told:?}"),
                }
            }
        };
        tokio::join!(proxy.cut(how), ending);
        assert_eq!(proxy.open(), 0);
        for _ in &clients {
            assert_eq!(echo.end().await.is_ok(), how == Cut::Close, "the server is told as the client is");
        }
    }
    let mut again = client(&proxy).await;
    say(&mut again, "hello").await;
    hear(&mut again, "hello").await;
}

#[tokio::test]
async fn a_silence_takes_the_bytes_and_sends_them_on_at_its_end() {
    let (echo, proxy) = both().await;
    let mut one = client(&proxy).await;
    proxy.hold(Way::Requests);
    say(&mut one, "asked ").await;
    timeout(PATIENCE, proxy.until_held(Way::Requests)).await.expect("taken");
    say(&mut one, "twice").await;
    hears_nothing(&mut one).await;
    assert_eq!(echo.heard(), 0);
    // Also a connection that comes in the silence.
    let mut other = client(&proxy).await;
    say(&mut other, "me too").await;
    hears_nothing(&mut other).await;
    proxy.carry_on();
    hear(&mut one, "asked twice").await;
    hear(&mut other, "me too").await;
}

#[tokio::test]
async fn a_request_is_done_whose_answer_is_held_and_lost() {
    let (mut echo, proxy) = both().await;
    let mut one = client(&proxy).await;
    proxy.hold(Way::Answers);
    say(&mut one, "COMMIT").await;
    timeout(PATIENCE, proxy.until_held(Way::Answers)).await.expect("answered");
    assert_eq!(echo.heard(), "COMMIT".len());
    proxy.cut(Cut::Reset).await;
    assert_eq!(one.read_u8().await.expect_err("cut off").kind(), io::ErrorKind::ConnectionReset);
    assert!(echo.end().await.is_err());
    // Nothing of the lost answer is left to be taken for a held one.
    assert!(timeout(A_WHILE, proxy.until_held(Way::Answers)).await.is_err());
}

#[tokio::test]
async fn the_end_of_a_connection_is_held_back_too() {
    let (mut echo, proxy) = both().await;
    let one = client(&proxy).await;
    proxy.hold(Way::Requests);
    drop(one);
    assert!(timeout(A_WHILE, echo.ends.recv()).await.is_err(), "a silent way tells nobody that the client has gone");
    proxy.carry_on();
    assert!(echo.end().await.is_ok());
}

#[tokio::test]
async fn each_chunk_is_delayed() {
    let (_echo, proxy) = both().await;
    let mut one = client(&proxy).await;
    proxy.delay(Duration::from_millis(20));
    let begun = std::time::Instant::now();
    say(&mut one, "hello").await;
    let mut bytes = [0; 5];
    one.read_exact(&mut bytes).await.expect("heard");
    assert!(begun.elapsed() >= Duration::from_millis(40), "20 ms each way");
}

#[tokio::test]
async fn new_connections_are_refused_on_command_and_when_the_server_is_gone() {
    let (_echo, proxy) = both().await;
    let mut one = client(&proxy).await;
    say(&mut one, "hello").await;
    hear(&mut one, "hello").await;
    proxy.refuse(true);
    let mut refused = client(&proxy).await;
    assert_eq!(refused.read_u8().await.expect_err("refused").kind(), io::ErrorKind::ConnectionReset);
    say(&mut one, "still here").await;
    hear(&mut one, "still here").await;
    assert_eq!((proxy.open(), proxy.accepted()), (1, 2));
    proxy.refuse(false);
    let mut again = client(&proxy).await;
    say(&mut again, "hello").await;
    hear(&mut again, "hello").await;

    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let proxy = Proxy::start(gone.to_string()).await.expect("started");
    let mut refused = client(&proxy).await;
    assert!(refused.read_u8().await.is_err());
}
