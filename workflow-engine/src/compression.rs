//! How large data is stored in less room, as text that any store can keep.
//!
//! The form is `gz:` and the base64 of the gzip of the JSON text. No JSON text begins so, hence what is stored tells by itself whether it is
//! compressed, and is readable whatever a host's option says.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use flate2::{Compression as Level, bufread::GzDecoder, write::GzEncoder};
use latchwork_core::{limits, store::Encoded};
use std::io::{Read, Write};

const PREFIX: &str = "gz:";

/// Why compressed data cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// The text was changed or cut off since it was written.
    #[error("its compressed text is damaged ({what}); restore it from a backup of the store, or terminate the instance")]
    #[non_exhaustive]
    Damaged {
        /// What is wrong with it.
        what: String,
    },
    /// It would become larger than any data may be.
    #[error(
        "its compressed text would become larger than {limit} bytes, which no data may be; it was not written by this engine"
    )]
    #[non_exhaustive]
    TooLarge {
        /// The limit, in bytes of JSON.
        limit: usize,
    },
}

impl CompressionError {
    fn damaged(what: impl std::fmt::Display) -> Self {
        Self::Damaged { what: what.to_string() }
    }
}

/// What is to be stored compressed; the option `compress_data_over`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compression {
    /// JSON of more bytes than this.
    pub(crate) over: Option<usize>,
}

impl Compression {
    /// The form in which this JSON text is stored: as it is, or compressed where that makes it smaller.
    pub(crate) fn pack(self, json: Encoded) -> Encoded {
        let bytes = json.as_str().len();
        // What could not be read again is not written.
        let wanted = self.over.is_some_and(|over| bytes > over) && bytes <= limits::DATA_BYTES_MAX;
        match wanted.then(|| compressed(json.as_str())).flatten() {
            Some(text) if text.len() < bytes => Encoded::from_json(text),
            _ => json,
        }
    }
}

impl Compression {
    /// As [`pack`](Self::pack).
    pub(crate) fn pack_in_place(self, json: &mut Encoded) {
        // Looked at first: most of it is small.
        if self.over.is_some_and(|over| json.as_str().len() > over) {
            *json = self.pack(json.clone());
        }
    }
}

/// `None` never comes to pass: memory takes all that is written to it.
fn compressed(json: &str) -> Option<String> {
    // The quickest level: data is written far more often than it is kept.
    let mut gzip = GzEncoder::new(Vec::with_capacity(json.len() / 4), Level::fast());
    gzip.write_all(json.as_bytes()).ok()?;
    let bytes = gzip.finish().ok()?;
    let mut text = String::with_capacity(PREFIX.len() + bytes.len().div_ceil(3) * 4);
    text.push_str(PREFIX);
    STANDARD_NO_PAD.encode_string(bytes, &mut text);
    Some(text)
}

/// The JSON text of data as a store keeps it: of a record, a checkpoint, a tombstone or a pointer's state, compressed or not.
/// [`InstanceHandle`](crate::InstanceHandle) and [`WorkflowHandle`](crate::WorkflowHandle) do this by themselves; it is for those who
/// read a store directly.
///
/// # Errors
/// [`CompressionError`] when the compressed text is damaged, or would become larger than any data may be (16 MiB).
pub fn decompress(stored: &Encoded) -> Result<Encoded, CompressionError> {
    let Some(text) = stored.as_str().strip_prefix(PREFIX) else { return Ok(stored.clone()) };
    let bytes = STANDARD_NO_PAD.decode(text).map_err(CompressionError::damaged)?;
    let limit = limits::DATA_BYTES_MAX;
    let mut gzip = GzDecoder::new(bytes.as_slice());
    let mut json = String::new();
    // One byte more than allowed, to know whether there are more.
    let read = (&mut gzip).take(limit as u64 + 1).read_to_string(&mut json);
    if json.len() > limit {
        return Err(CompressionError::TooLarge { limit });
    }
    read.map_err(CompressionError::damaged)?;
    if !gzip.into_inner().is_empty() {
        return Err(CompressionError::damaged("something follows its end"));
    }
    Ok(Encoded::from_json(json))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Compression = Compression { over: Some(0) };

    fn json(text: &str) -> Encoded {
        Encoded::of(text).expect("JSON")
    }

    #[test]
    fn what_is_larger_than_the_threshold_is_stored_in_less_room_and_reads_back() {
        let large = json(&"zażółć ".repeat(1_000));
        let bytes = large.as_str().len();
        let stored = Compression { over: Some(bytes - 1) }.pack(large.clone());
        assert!(stored.as_str().starts_with("gz:") && stored.as_str().len() * 20 < bytes, "{}", stored.as_str().len());
        assert_eq!(decompress(&stored).expect("read"), large);
        for option in [Compression { over: Some(bytes) }, Compression { over: None }] {
            assert_eq!(option.pack(large.clone()), large);
        }
        assert_eq!(decompress(&large).expect("read"), large);
    }

    #[test]
    fn what_would_not_become_smaller_stays_as_it_is() {
        assert_eq!(ALL.pack(json("short")), json("short"));
        let noise: String =
            (0..2_000_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_769).rotate_left(n % 31))).collect();
        let noise = json(&noise);
        assert_eq!(decompress(&ALL.pack(noise.clone())).expect("read"), noise);
    }

    #[test]
    fn no_json_is_taken_for_compressed() {
        for text in ["gz:", "gz:AAAA", "\"gz:"] {
            assert_eq!(decompress(&json(text)).expect("read"), json(text));
        }
    }

    #[test]
    fn each_damage_is_told() {
        let stored = ALL.pack(json(&"x".repeat(10_000)));
        let text = stored.as_str();
        let damaged = [
            "gz:".to_owned(),
            "gz:AAAA".to_owned(),
            text.get(..text.len() / 2).expect("ASCII").to_owned(),
            text.get(..text.len() - 4).expect("ASCII").to_owned(),
            format!("{text}{}", "AAAA"),
            text.replacen("gz:", "gz:*", 1),
        ];
        for text in damaged {
            let error = decompress(&Encoded::from_json(text.clone())).expect_err("damaged");
            assert!(error.to_string().contains("its compressed text is damaged"), "{error} for {text}");
        }
    }

    #[test]
    fn what_was_changed_is_told_or_reads_the_same() {
        let text: String = (0..300_u32).map(|n| format!("{},", n * n % 97)).collect();
        let large = json(&text);
        let stored = ALL.pack(large.clone());
        let text = stored.as_str();
        let mut told = 0;
        for at in 3..text.len() {
            let other = if text.as_bytes()[at] == b'Q' { "R" } else { "Q" };
            let changed = format!("{}{other}{}", text.get(..at).expect("ASCII"), text.get(at + 1..).expect("ASCII"));
            match decompress(&Encoded::from_json(changed)) {
                // The header has a time and a name of the system, which say nothing of the content.
                Ok(read) => assert_eq!(read, large, "changed at {at}"),
                Err(_) => told += 1,
            }
        }
        assert!(told > text.len() - 30, "{told} of {}", text.len());
    }

    #[test]
    fn a_bomb_is_refused_before_it_fills_the_memory() {
        let bomb = compressed(&" ".repeat(limits::DATA_BYTES_MAX + 1)).expect("compressed");
        assert!(bomb.len() < 200_000, "{}", bomb.len());
        let error = decompress(&Encoded::from_json(bomb)).expect_err("refused");
        assert!(matches!(error, CompressionError::TooLarge { limit } if limit == limits::DATA_BYTES_MAX), "{error}");
        let largest = compressed(&" ".repeat(limits::DATA_BYTES_MAX)).expect("compressed");
        assert_eq!(decompress(&Encoded::from_json(largest)).expect("allowed").as_str().len(), limits::DATA_BYTES_MAX);
        // What could not be read again is not compressed.
        let too_large = Encoded::from_json("1".repeat(limits::DATA_BYTES_MAX + 1));
        assert_eq!(ALL.pack(too_large.clone()), too_large);
    }
}
