//! The socket: shared between the driver and whoever watches whether the server has closed it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// First probe of an idle connection, pause between probes, and their number: 11 s until a dead server is noticed.
const IDLE: Duration = Duration::from_secs(5);
const PROBE: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;
/// Longest time for which what was sent may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(9);

/// A TCP connection that the driver reads and writes, and that can be watched meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct SharedStream(Arc<TcpStream>);

impl SharedStream {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let socket = socket2::SockRef::from(&stream);
        let keep_alive = socket2::TcpKeepalive::new().with_time(IDLE).with_interval(PROBE);
        #[cfg(not(any(target_os = "openbsd", target_os = "redox", target_os = "solaris")))]
        let keep_alive = keep_alive.with_retries(PROBES);
        socket.set_tcp_keepalive(&keep_alive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        Ok(Self(Arc::new(stream)))
    }

    /// Resolves when something happens on the idle socket: `true` when it is closed, `false` when there is something to read.
    pub(crate) async fn stirs(&self) -> bool {
        !matches!(self.0.peek(&mut [0]).await, Ok(1..))
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write))
    }
}
