//! Requests and their answers.
//!
//! Every request is one batch with parameters, and so one round trip. Rows of several results come together: the first column of each says
//! what it is.

use crate::error::Failure;
use latchwork_core::{
    clock::Timestamp,
    store::{Encoded, InstanceId},
};
use latchwork_sqlserver_client::driver::{ColumnData, Row, ToSql};
use std::{borrow::Cow, str::FromStr, sync::Arc};

/// Puts a batch together from files of `statements`, by their names.
macro_rules! batch {
    ($($name:literal)+) => {
        concat!($(include_str!(concat!("statements/", $name, ".sql"))),+)
    };
}

pub(crate) use batch;

/// A parameter.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    Float(f64),
}

impl ToSql for Value {
    fn to_sql(&self) -> ColumnData<'_> {
        match self {
            Self::Text(text) => ColumnData::String(Some(Cow::Borrowed(text))),
            Self::Int(number) => ColumnData::I64(Some(*number)),
            Self::Float(number) => ColumnData::F64(Some(*number)),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// A batch for the schema `[latchwork]`, and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) text: Cow<'static, str>,
    pub(crate) values: Vec<Value>,
}

impl Request {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), values: Vec::new() }
    }

    /// With one more parameter: `@P1`, `@P2`, ...
    pub(crate) fn with(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(crate) fn parameters(&self) -> Vec<&dyn ToSql> {
        self.values.iter().map(|value| value as &dyn ToSql).collect()
    }
}

/// The columns of a row, taken one after the other.
#[derive(Debug)]
pub(crate) struct Columns(std::vec::IntoIter<ColumnData<'static>>);

impl From<Row> for Columns {
    fn from(row: Row) -> Self {
        Self(row.into_iter())
    }
}

impl Columns {
    /// A number of any size, or a bit.
    pub(crate) fn opt_int(&mut self) -> Result<Option<i64>, Failure> {
        match self.0.next() {
            Some(ColumnData::U8(number)) => Ok(number.map(i64::from)),
            Some(ColumnData::I16(number)) => Ok(number.map(i64::from)),
            Some(ColumnData::I32(number)) => Ok(number.map(i64::from)),
            Some(ColumnData::I64(number)) => Ok(number),
            Some(ColumnData::Bit(bit)) => Ok(bit.map(i64::from)),
            other => Err(wrong("a number", other.as_ref())),
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64, Failure> {
        self.opt_int()?.ok_or_else(|| wrong("a number", None))
    }

    /// A number that is of this type.
    pub(crate) fn number<T: TryFrom<i64>>(&mut self) -> Result<T, Failure> {
        let number = self.int()?;
        T::try_from(number).map_err(|_| Failure::corrupt(format!("{number} is out of range")))
    }

    pub(crate) fn opt_float(&mut self) -> Result<Option<f64>, Failure> {
        match self.0.next() {
            Some(ColumnData::F64(number)) => Ok(number),
            Some(ColumnData::F32(number)) => Ok(number.map(f64::from)),
            other => Err(wrong("a fraction", other.as_ref())),
        }
    }

    pub(crate) fn opt_text(&mut self) -> Result<Option<String>, Failure> {
        match self.0.next() {
            Some(ColumnData::String(text)) => Ok(text.map(Cow::into_owned)),
            other => Err(wrong("a text", other.as_ref())),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Failure> {
        self.opt_text()?.ok_or_else(|| wrong("a text", None))
    }

    pub(crate) fn shared_text(&mut self) -> Result<Arc<str>, Failure> {
        self.text().map(Arc::from)
    }

    pub(crate) fn encoded(&mut self) -> Result<Option<Encoded>, Failure> {
        Ok(self.opt_text()?.map(Encoded::from_json))
    }

    /// A text that reads as something.
    pub(crate) fn parsed<T: FromStr>(&mut self, what: &str) -> Result<T, Failure> {
        let text = self.text()?;
        text.parse().map_err(|_| Failure::corrupt(format!("{text:?} is no {what}")))
    }

    /// As [`parsed`](Self::parsed), of a column that may be without.
    pub(crate) fn opt_parsed<T: FromStr>(&mut self, what: &str) -> Result<Option<T>, Failure> {
        let parsed = |text: String| text.parse().map_err(|_| Failure::corrupt(format!("{text:?} is no {what}")));
        self.opt_text()?.map(parsed).transpose()
    }

    pub(crate) fn instance(&mut self) -> Result<InstanceId, Failure> {
        self.parsed("instance id")
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, Failure> {
        let micros = self.int()?;
        Timestamp::from_timestamp_micros(micros).ok_or_else(|| Failure::corrupt(format!("{micros} is no time")))
    }

    pub(crate) fn opt_time(&mut self) -> Result<Option<Timestamp>, Failure> {
        let read =
            |micros| Timestamp::from_timestamp_micros(micros).ok_or_else(|| Failure::corrupt(format!("{micros} is no time")));
        self.opt_int()?.map(read).transpose()
    }
}

/// The value itself may be confidential.
fn wrong(wanted: &str, found: Option<&ColumnData<'_>>) -> Failure {
    let found = match found {
        None => "nothing",
        Some(ColumnData::String(_)) => "a text",
        Some(_) => "a value of another type",
    };
    Failure::corrupt(format!("{wanted} was expected, {found} is there"))
}
