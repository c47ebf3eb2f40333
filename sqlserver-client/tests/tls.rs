//! TLS with the simulated server.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_sqlserver_client::{Session, SqlServerError, SqlServerOptions};
use latchwork_testkit::{
    proxy::{Cut, Proxy},
    sqlserver::{SimulatedSqlServer, TlsFault},
};
use std::{path::PathBuf, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const LIMIT: Duration = Duration::from_secs(20);
/// What the simulated server never hears unencrypted when TLS is on.
const SQL: &str = "SELECT @P1 AS confidential";

async fn start() -> SimulatedSqlServer {
    SimulatedSqlServer::start_with_tls("127.0.0.1").await.expect("started")
}

/// The server's connection string with other words about encryption.
fn text(server: &SimulatedSqlServer, encryption: &str) -> String {
    server.connection_string().replace("Encrypt=false", encryption)
}

async fn open(text: String) -> Result<Session, SqlServerError> {
    Session::open(&SqlServerOptions::new(text)).await
}

async fn works(mut session: Session) {
    let results = session.query(SQL, &[&7_i64], LIMIT).await.expect("answered");
    assert_eq!(results[0][0].get::<i64, _>("confidential"), Some(7));
}

/// A file of this text; it is gone when the folder is dropped.
struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn new(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        Self { _folder: folder, path }
    }
}

/// All that a client says to the server, as it travels.
struct Listener {
    address: std::net::SocketAddr,
    heard: tokio::task::JoinHandle<Vec<u8>>,
}

impl Listener {
    /// Between one client and the server.
    async fn start(server: std::net::SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let heard = tokio::spawn(async move {
            let (client, _) = listener.accept().await.expect("a client");
            let server = TcpStream::connect(server).await.expect("a server");
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let (mut heard, mut bytes) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                heard.extend(&bytes[..count]);
                to_server.write_all(&bytes[..count]).await.expect("passed on");
            }
            heard
        });
        Self { address, heard }
    }
}

fn contains(heard: &[u8], text: &str) -> bool {
    let wanted: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    heard.windows(wanted.len()).any(|part| part == wanted)
}

#[tokio::test]
async fn what_travels_is_as_secret_as_the_connection_string_says() {
    let server = start().await;
    // The password is scrambled, not encrypted, in a log-in; the name of the user is as it is.
    for (encryption, shows_user, shows_sql) in [
        ("Encrypt=true;TrustServerCertificate=true", false, false),
        ("TrustServerCertificate=true", false, false),
        ("Encrypt=strict;TrustServerCertificate=true", false, false),
        ("Encrypt=false", false, true),
        ("Encrypt=DANGER_PLAINTEXT", true, true),
    ] {
        let listener = Listener::start(server.address()).await;
        let (old, new) = (format!(",{}", server.address().port()), format!(",{}", listener.address.port()));
        works(open(text(&server, encryption).replace(&old, &new)).await.expect(encryption)).await;
        let heard = listener.heard.await.expect("heard");
        assert_eq!(contains(&heard, "latchwork"), shows_user, "{encryption}");
        assert_eq!(contains(&heard, "confidential"), shows_sql, "{encryption}");
    }
}

#[tokio::test]
async fn a_certificate_of_a_named_authority_is_accepted() {
    let server = start().await;
    let authority = File::new("ca.pem", server.certificate().expect("TLS"));
    let path = authority.path.display();
    for encrypt in ["true", "strict", "false"] {
        let by_authority = text(&server, &format!("Encrypt={encrypt};TrustServerCertificateCA={path}"));
        works(open(by_authority).await.expect(encrypt)).await;
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_and_the_error_says_what_to_do() {
    let server = start().await;
    let other = SimulatedSqlServer::start_with_tls("127.0.0.1").await.expect("started");
    let wrong = File::new("other.pem", other.certificate().expect("TLS"));
    let wrong = format!("TrustServerCertificateCA={}", wrong.path.display());
    for encryption in [
        "Encrypt=true".to_owned(),
        "Encrypt=strict".to_owned(),
        format!("Encrypt=true;{wrong}"),
        format!("Encrypt=false;{wrong}"),
    ] {
        let error = open(text(&server, &encryption)).await.expect_err(&encryption);
        assert!(matches!(error, SqlServerError::Tls { .. }) && !error.is_transient(), "{encryption}: {error}");
        let told = error.to_string();
        assert!(told.contains("TrustServerCertificateCA") && !told.contains("trust_cert"), "{told}");
        assert!(!format!("{error:?}{error}").contains("Str0ng"));
    }
    assert_eq!(server.log_ins(), 0, "no log-in, and so no password, was sent");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let server = SimulatedSqlServer::start_with_tls("db1").await.expect("started");
    let authority = File::new("ca.pem", server.certificate().expect("TLS"));
    for encrypt in ["true", "strict", "false"] {
        let encryption = format!("Encrypt={encrypt};TrustServerCertificateCA={}", authority.path.display());
        let error = open(text(&server, &encryption)).await.expect_err("refused");
        assert!(matches!(error, SqlServerError::Tls { .. }) && error.to_string().contains("db1"), "{encrypt}: {error}");
    }
    assert_eq!(server.log_ins(), 0);
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_an_error_of_tls_and_nothing_is_sent() {
    let server = start().await;
    let (empty, odd) = (File::new("empty.pem", ""), File::new("ca.txt", "?"));
    let missing = empty.path.with_file_name("missing.pem");
    for path in [&empty.path, &odd.path, &missing] {
        for encrypt in ["true", "false"] {
            let encryption = format!("Encrypt={encrypt};TrustServerCertificateCA={}", path.display());
            let error = open(text(&server, &encryption)).await.expect_err("refused");
            assert!(matches!(error, SqlServerError::Tls { .. }) && !error.is_transient(), "{encryption}: {error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }
    assert_eq!(server.log_ins(), 0);
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_wanted() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let error = open(text(&server, "Encrypt=true;TrustServerCertificate=true")).await.expect_err("refused");
    assert!(matches!(error, SqlServerError::NoTls { .. }) && !error.is_transient(), "{error}");
    assert!(open(text(&server, "Encrypt=strict;TrustServerCertificate=true")).await.is_err());
    // Who names an authority wants the certificate checked, also for the log-in alone.
    let other = start().await;
    let authority = File::new("ca.pem", other.certificate().expect("TLS"));
    let checked = format!("Encrypt=false;TrustServerCertificateCA={}", authority.path.display());
    assert!(open(text(&server, &checked)).await.is_err());
    assert_eq!(server.log_ins(), 0);
    works(open(server.connection_string()).await.expect("in the clear, as asked")).await;
}

#[tokio::test]
async fn a_handshake_that_fails_is_told_as_what_it_is() {
    let server = start().await;
    for encryption in ["Encrypt=true;TrustServerCertificate=true", "Encrypt=strict;TrustServerCertificate=true"] {
        let options = |limit| SqlServerOptions::new(text(&server, encryption)).with_connect_timeout(limit);
        server.fail_tls(Some(TlsFault::Alerts));
        let error = Session::open(&options(LIMIT)).await.expect_err("refused");
        assert!(matches!(error, SqlServerError::Tls { .. }) && !error.is_transient(), "{encryption}: {error}");
        server.fail_tls(Some(TlsFault::Closes));
        let error = Session::open(&options(LIMIT)).await.expect_err("refused");
        assert!(matches!(error, SqlServerError::Unreachable { .. }) && error.is_transient(), "{encryption}: {error}");
        server.fail_tls(Some(TlsFault::Silent));
        let error = Session::open(&options(Duration::from_millis(50))).await.expect_err("refused");
        assert!(matches!(error, SqlServerError::Unreachable { .. }) && error.is_transient(), "{encryption}: {error}");
        server.fail_tls(None);
        works(Session::open(&options(LIMIT)).await.expect("logged in")).await;
    }
}

#[tokio::test]
async fn the_end_of_an_encrypted_session_is_seen_at_once() {
    let server = start().await;
    let proxy = Proxy::start(server.address().to_string()).await.expect("started");
    let (old, new) = (format!(",{}", server.address().port()), format!(",{}", proxy.address().port()));
    for encrypt in ["true", "strict"] {
        let encryption = format!("Encrypt={encrypt};TrustServerCertificate=true");
        let session = open(text(&server, &encryption).replace(&old, &new)).await.expect("logged in");
        let watch = async move { tokio::time::timeout(LIMIT, session.stirs()).await.expect("seen") };
        let (closed, ()) = tokio::join!(watch, proxy.cut(Cut::Reset));
        assert!(closed, "{encryption}");
    }
}
