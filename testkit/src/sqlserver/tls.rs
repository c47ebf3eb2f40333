//! TLS as SQL Server has it: inside PRELOGIN packets, for the log-in alone or for all, or (`Encrypt=strict`) before everything else.

use super::{
    server::Shared,
    wire::{self, Answer, Message, PRELOGIN, malformed},
};
use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, split},
    net::TcpStream,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{self, ServerConfig, crypto::aws_lc_rs, pki_types::PrivatePkcs8KeyDer, version},
};

/// The first byte of a TLS handshake, where a TDS client would say PRELOGIN.
const HANDSHAKE: u8 = 0x16;
/// A fatal alert of TLS 1.2: the handshake has failed.
const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];

const OFF: u8 = 0;
const ON: u8 = 1;
const NOT_SUPPORTED: u8 = 2;
const REQUIRED: u8 = 3;

/// How the server fails at TLS on command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// It closes the connection as soon as the client begins the handshake.
    Closes,
    /// It answers the handshake with a fatal alert, as a server that shares no cipher with the client does.
    Alerts,
    /// It does not answer the handshake.
    Silent,
}

/// The server's certificate and what it accepts with it.
pub(super) struct Tls {
    pub(super) certificate: String,
    /// For TDS 7, which knows nothing later than TLS 1.2.
    wrapped: TlsAcceptor,
    strict: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// With a new certificate of its own making, for a server of this name.
    pub(super) fn new(name: &str) -> io::Result<Self> {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]);
        let made = made.map_err(io::Error::other)?;
        let config = |versions: &[&'static rustls::SupportedProtocolVersion]| {
            let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(versions)?
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key.into())
        };
        let wrapped = config(&[&version::TLS12]).map_err(io::Error::other)?;
        let mut strict = config(rustls::DEFAULT_VERSIONS).map_err(io::Error::other)?;
        strict.alpn_protocols.push(b"tds/8.0".to_vec());
        let (wrapped, strict) = (TlsAcceptor::from(Arc::new(wrapped)), TlsAcceptor::from(Arc::new(strict)));
        Ok(Self { certificate: made.cert.pem(), wrapped, strict })
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection whose log-in has come.
pub(super) struct Arrived {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// What came after the greeting; a log-in, if the client does as it should.
    pub(super) log_in: Message,
}

impl Arrived {
    fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, log_in: Message) -> Self {
        let (reader, writer) = split(stream);
        Self { reader: Box::new(reader), writer: Box::new(writer), log_in }
    }
}

/// Greets a client, with the encryption that it and the server agree on.
pub(super) async fn greet(mut stream: TcpStream, server: &Shared) -> io::Result<Arrived> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first == [HANDSHAKE] {
        let tls = server.tls.as_ref().ok_or_else(|| malformed("a handshake with a server without TLS"))?;
        fail_on_command(&mut stream, server, |stream| Box::pin(stream.write_all(&ALERT))).await?;
        let mut stream = tls.strict.accept(stream).await?;
        asked(&wire::read(&mut stream).await?)?;
        wire::write(&mut stream, &Answer::prelogin(ON).0).await?;
        let log_in = wire::read(&mut stream).await?;
        return Ok(Arrived::new(stream, log_in));
    }
    let asked = asked(&wire::read(&mut stream).await?)?;
    let (Some(tls), false) = (&server.tls, asked == NOT_SUPPORTED) else {
        wire::write(&mut stream, &Answer::prelogin(NOT_SUPPORTED).0).await?;
        // A client that begins a TLS handshake all the same is turned away with its log-in.
        let log_in = wire::read(&mut stream).await?;
        return Ok(Arrived::new(stream, log_in));
    };
    let agreed = if matches!(asked, ON | REQUIRED) { ON } else { OFF };
    wire::write(&mut stream, &Answer::prelogin(agreed).0).await?;
    fail_on_command(&mut stream, server, |stream| Box::pin(wire::write_as(PRELOGIN, stream, &ALERT))).await?;
    let mut stream = tls.wrapped.accept(Wrapped::new(stream)).await?;
    stream.get_mut().0.wraps = false;
    let log_in = wire::read(&mut stream).await?;
    Ok(if agreed == ON { Arrived::new(stream, log_in) } else { Arrived::new(stream.into_inner().0.stream, log_in) })
}

/// The encryption that the client's greeting asks for.
fn asked(greeting: &Message) -> io::Result<u8> {
    const ENCRYPTION: u8 = 1;
    if greeting.kind != PRELOGIN {
        return Err(malformed("a client that does not begin with a greeting"));
    }
    let options = greeting.payload.chunks_exact(5).take_while(|option| option.first() != Some(&0xff));
    let mut places = options.filter_map(|option| match *option {
        [ENCRYPTION, high, low, ..] => Some(usize::from(u16::from_be_bytes([high, low]))),
        _ => None,
    });
    Ok(places.next().and_then(|place| greeting.payload.get(place).copied()).unwrap_or(NOT_SUPPORTED))
}

type Alerting<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

/// Fails as the server was told to, once the client has begun the handshake.
async fn fail_on_command(
    stream: &mut TcpStream,
    server: &Shared,
    alert: impl for<'a> FnOnce(&'a mut TcpStream) -> Alerting<'a>,
) -> io::Result<()> {
    let Some(fault) = server.tell(|told| told.tls_fault) else { return Ok(()) };
    stream.peek(&mut [0]).await?;
    if fault == TlsFault::Alerts {
        alert(stream).await?;
        stream.shutdown().await?;
    }
    if fault != TlsFault::Closes {
        // Until the client gives up.
        tokio::io::copy(stream, &mut tokio::io::sink()).await?;
    }
    Err(malformed("a handshake that had to fail"))
}

/// A stream whose bytes travel inside PRELOGIN packets, as those of the handshake do.
struct Wrapped {
    stream: TcpStream,
    wraps: bool,
    header: [u8; wire::HEADER],
    header_read: usize,
    /// What is still to be read of the packet.
    rest: usize,
    out: Vec<u8>,
}

impl Wrapped {
    fn new(stream: TcpStream) -> Self {
        Self { stream, wraps: true, header: [0; wire::HEADER], header_read: 0, rest: 0, out: Vec::new() }
    }
}

impl AsyncRead for Wrapped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, wraps, header, header_read, rest, .. } = &mut *self;
        let mut stream = Pin::new(stream);
        if !*wraps {
            return stream.poll_read(cx, buffer);
        }
        while *rest == 0 {
            let mut missing = ReadBuf::new(header.get_mut(*header_read..).unwrap_or_default());
            ready!(stream.as_mut().poll_read(cx, &mut missing))?;
            match missing.filled().len() {
                0 => return Poll::Ready(Ok(())),
                read => *header_read += read,
            }
            if *header_read == header.len() {
                let [kind, _, high, low, ..] = *header;
                if kind != PRELOGIN {
                    return Poll::Ready(Err(malformed("a handshake outside of PRELOGIN packets")));
                }
                *rest = usize::from(u16::from_be_bytes([high, low])).saturating_sub(header.len());
                *header_read = 0;
            }
        }
        let mut part = buffer.take(*rest);
        ready!(stream.poll_read(cx, &mut part))?;
        let read = part.filled().len();
        *rest -= read;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wrapped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.wraps {
            return Pin::new(&mut self.stream).poll_write(cx, bytes);
        }
        let packets = wire::packets(PRELOGIN, bytes);
        self.out.extend(packets);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, out, .. } = &mut *self;
        let mut stream = Pin::new(stream);
        while !out.is_empty() {
            let written = ready!(stream.as_mut().poll_write(cx, out))?;
            out.drain(..written);
        }
        stream.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
