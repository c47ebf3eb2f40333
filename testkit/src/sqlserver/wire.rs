//! The little of TDS that log-in, batches and procedure calls need: messages, and the tokens of an answer.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(super) const BATCH: u8 = 0x01;
pub(super) const RPC: u8 = 0x03;
pub(super) const ATTENTION: u8 = 0x06;
pub(super) const LOGIN: u8 = 0x10;
pub(super) const PRELOGIN: u8 = 0x12;
const ANSWER: u8 = 0x04;

/// The size of a packet when client and server agree on nothing else.
const PACKET: usize = 4096;
pub(super) const HEADER: usize = 8;
/// Latin1_General, case sensitive or not: nobody looks.
const COLLATION: [u8; 5] = [0x09, 0x04, 0xd0, 0x00, 0x34];

const DONE_MORE: u16 = 0x01;
const DONE_ERROR: u16 = 0x02;
const DONE_COUNT: u16 = 0x10;
const DONE_ATTENTION: u16 = 0x20;

/// What a client sent, put together from its packets.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Message> {
    let mut payload = Vec::new();
    loop {
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).await?;
        let [kind, status, high, low, ..] = header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let body = length.checked_sub(HEADER).ok_or_else(|| malformed("a packet shorter than its header"))?;
        let start = payload.len();
        payload.resize(start + body, 0);
        stream.read_exact(payload.get_mut(start..).unwrap_or_default()).await?;
        if status & 1 == 1 {
            return Ok(Message { kind, payload });
        }
    }
}

/// The packets of a message.
pub(super) fn packets(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(payload.len() + HEADER);
    let mut chunks = payload.chunks(PACKET - HEADER).peekable();
    let mut number = 1_u8;
    while let Some(chunk) = chunks.next() {
        let length = u16::try_from(chunk.len() + HEADER).unwrap_or(u16::MAX);
        wire.extend([kind, u8::from(chunks.peek().is_none())]);
        wire.extend(length.to_be_bytes());
        wire.extend([0, 0, number, 0]);
        wire.extend(chunk);
        number = number.wrapping_add(1);
    }
    wire
}

/// Sends an answer.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), payload: &[u8]) -> io::Result<()> {
    write_as(ANSWER, stream, payload).await
}

pub(super) async fn write_as(kind: u8, stream: &mut (impl AsyncWrite + Unpin), payload: &[u8]) -> io::Result<()> {
    stream.write_all(&packets(kind, payload)).await?;
    stream.flush().await
}

pub(super) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads the fields of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or_else(|| malformed("a message that ends early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| malformed("a message that ends early"))
    }

    pub(super) fn u8(&mut self) -> io::Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> io::Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Text of so many UTF-16 units.
    pub(super) fn text(&mut self, units: usize) -> io::Result<String> {
        Ok(utf16(self.take(units * 2)?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(super) fn utf16(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    String::from_utf16_lossy(&units)
}

/// A value of the few types that are spoken here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Number(i64),
    Text(String),
}

/// An error or a notice as the server words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) number: i32,
    pub(super) class: u8,
    pub(super) text: String,
}

impl Complaint {
    pub(super) fn error(number: i32, text: impl Into<String>) -> Self {
        Self { number, class: 16, text: text.into() }
    }
}

/// The tokens of an answer.
#[derive(Debug, Default)]
pub(super) struct Answer(pub(super) Vec<u8>);

impl Answer {
    fn short_text(&mut self, text: &str) {
        let units: Vec<u16> = text.encode_utf16().take(255).collect();
        self.0.push(u8::try_from(units.len()).unwrap_or(u8::MAX));
        self.units(&units);
    }

    fn units(&mut self, units: &[u16]) {
        self.0.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    }

    /// A token whose body follows its length.
    fn sized(&mut self, token: u8, body: &Self) {
        self.0.push(token);
        self.0.extend(u16::try_from(body.0.len()).unwrap_or(u16::MAX).to_le_bytes());
        self.0.extend(&body.0);
    }

    pub(super) fn prelogin(encryption: u8) -> Self {
        // Version, encryption, multiple result sets: each with its offset and its length, then the three values.
        let table: [(u8, u16, u16); 3] = [(0, 16, 6), (1, 22, 1), (4, 23, 1)];
        let mut answer = Self::default();
        for (option, offset, length) in table {
            answer.0.push(option);
            answer.0.extend(offset.to_be_bytes());
            answer.0.extend(length.to_be_bytes());
        }
        answer.0.push(0xff);
        // 16.0, encryption, no multiple active result sets.
        answer.0.extend([16, 0, 0, 0, 0, 0, encryption, 0]);
        answer
    }

    pub(super) fn log_in(database: &str) -> Self {
        let mut answer = Self::default();
        let mut change = Self::default();
        change.0.push(1);
        change.short_text(database);
        change.short_text("master");
        answer.sized(0xe3, &change);
        let mut acknowledged = Self::default();
        acknowledged.0.push(1);
        acknowledged.0.extend(0x7400_0004_u32.to_be_bytes());
        acknowledged.short_text("Simulated SQL Server");
        acknowledged.0.extend([16, 0, 0, 0]);
        answer.sized(0xad, &acknowledged);
        answer.done(false);
        answer
    }

    pub(super) fn complain(&mut self, complaint: &Complaint) {
        let mut body = Self::default();
        body.0.extend(complaint.number.to_le_bytes());
        body.0.extend([1, complaint.class]);
        let units: Vec<u16> = complaint.text.encode_utf16().take(2_000).collect();
        body.0.extend(u16::try_from(units.len()).unwrap_or(u16::MAX).to_le_bytes());
        body.units(&units);
        body.short_text("simulated");
        body.short_text("");
        body.0.extend(1_u32.to_le_bytes());
        self.sized(if complaint.class > 10 { 0xaa } else { 0xab }, &body);
    }

    /// One row with its columns' names.
    pub(super) fn row(&mut self, columns: &[(String, Value)], last: bool) {
        self.0.push(0x81);
        self.0.extend(u16::try_from(columns.len()).unwrap_or(u16::MAX).to_le_bytes());
        for (name, value) in columns {
            self.0.extend([0, 0, 0, 0, 1, 0]);
            match value {
                Value::Number(_) => self.0.extend([0x26, 8]),
                Value::Null | Value::Text(_) => {
                    self.0.push(0xe7);
                    self.0.extend(8_000_u16.to_le_bytes());
                    self.0.extend(COLLATION);
                }
            }
            self.short_text(name);
        }
        self.0.push(0xd1);
        for (_, value) in columns {
            match value {
                Value::Null => self.0.extend([0xff, 0xff]),
                Value::Number(number) => {
                    self.0.push(8);
                    self.0.extend(number.to_le_bytes());
                }
                Value::Text(text) => {
                    let units: Vec<u16> = text.encode_utf16().take(4_000).collect();
                    self.0.extend(u16::try_from(units.len() * 2).unwrap_or(u16::MAX).to_le_bytes());
                    self.units(&units);
                }
            }
        }
        self.token_done(0xff, DONE_COUNT | if last { 0 } else { DONE_MORE }, 1);
    }

    pub(super) fn return_status(&mut self, code: i32) {
        self.0.push(0x79);
        self.0.extend(code.to_le_bytes());
    }

    fn token_done(&mut self, token: u8, status: u16, rows: u64) {
        self.0.push(token);
        self.0.extend(status.to_le_bytes());
        self.0.extend(0_u16.to_le_bytes());
        self.0.extend(rows.to_le_bytes());
    }

    pub(super) fn done(&mut self, failed: bool) {
        self.token_done(0xfd, if failed { DONE_ERROR } else { 0 }, 0);
    }

    pub(super) fn procedure_done(&mut self, failed: bool) {
        self.token_done(0xfe, if failed { DONE_ERROR } else { 0 }, 0);
    }

    pub(super) fn attention_done() -> Self {
        let mut answer = Self::default();
        answer.token_done(0xfd, DONE_ATTENTION, 0);
        answer
    }
}
