//! What clients ask: log-in, batches, procedure calls.

use super::wire::{Fields, Value, malformed, utf16};
use std::io;

/// What a client says of itself when it logs in.
#[derive(Clone, Debug)]
pub(super) struct LogIn {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) application: String,
    pub(super) database: String,
}

impl LogIn {
    pub(super) fn read(payload: &[u8]) -> io::Result<Self> {
        let field = |at: usize| -> io::Result<&[u8]> {
            let mut fields = Fields(payload.get(at..).unwrap_or_default());
            let (offset, units) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
            payload.get(offset..offset + units * 2).ok_or_else(|| malformed("a log-in whose fields lie outside"))
        };
        let hidden: Vec<u8> = field(44)?.iter().map(|byte| (byte ^ 0xa5).rotate_left(4)).collect();
        Ok(Self {
            user: utf16(field(40)?),
            password: utf16(&hidden),
            application: utf16(field(48)?),
            database: utf16(field(68)?),
        })
    }
}

/// A procedure, with its parameters by name.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) procedure: String,
    pub(super) parameters: Vec<(String, Value)>,
}

/// The headers before a batch or a call say nothing that is needed here.
fn skip_headers(payload: &[u8]) -> io::Result<Fields<'_>> {
    let length = usize::try_from(Fields(payload).u32()?).unwrap_or(usize::MAX);
    payload.get(length..).map(Fields).ok_or_else(|| malformed("headers longer than their message"))
}

pub(super) fn batch(payload: &[u8]) -> io::Result<String> {
    Ok(utf16(skip_headers(payload)?.0))
}

impl Call {
    pub(super) fn read(payload: &[u8]) -> io::Result<Self> {
        let mut fields = skip_headers(payload)?;
        let procedure = match fields.u16()? {
            0xffff => match fields.u16()? {
                10 => "sp_executesql".to_owned(),
                other => format!("procedure number {other}"),
            },
            units => fields.text(usize::from(units))?,
        };
        let _options = fields.u16()?;
        let mut parameters = Vec::new();
        while !fields.is_empty() {
            let units = usize::from(fields.u8()?);
            let name = fields.text(units)?;
            let _flags = fields.u8()?;
            parameters.push((name, value(&mut fields)?));
        }
        Ok(Self { procedure, parameters })
    }
}

fn value(fields: &mut Fields<'_>) -> io::Result<Value> {
    match fields.u8()? {
        // Integers and bits, which may be null.
        0x26 | 0x68 => {
            let _size = fields.u8()?;
            let length = usize::from(fields.u8()?);
            let bytes = fields.take(length)?;
            let (Some(highest), true) = (bytes.last(), length <= 8) else { return Ok(Value::Null) };
            let mut wide = [if length > 1 && highest & 0x80 != 0 { 0xff } else { 0 }; 8];
            wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            Ok(Value::Number(i64::from_le_bytes(wide)))
        }
        0xe7 => {
            let longest = fields.u16()?;
            let _collation = fields.take(5)?;
            if longest != 0xffff {
                return match fields.u16()? {
                    0xffff => Ok(Value::Null),
                    length => Ok(Value::Text(utf16(fields.take(usize::from(length))?))),
                };
            }
            if fields.u64()? == u64::MAX {
                return Ok(Value::Null);
            }
            let mut bytes = Vec::new();
            loop {
                match usize::try_from(fields.u32()?).unwrap_or(usize::MAX) {
                    0 => return Ok(Value::Text(utf16(&bytes))),
                    length => bytes.extend(fields.take(length)?),
                }
            }
        }
        other => Err(malformed(&format!("a parameter of the type {other:#x}, which the simulator does not know"))),
    }
}
