//! The orders, as a shop's web front end might export them: a CSV file.

use std::{collections::HashMap, io::Read};

use anyhow::{Result, bail};
use csv::{ErrorKind, ReaderBuilder, Trim};
use serde::{Deserialize, Serialize};

/// The file that is read when no other is given.
pub(crate) const BUILT_IN: &str = include_str!("../data/orders.csv");

const COLUMNS: [&str; 6] = ["id", "customer", "sku", "quantity", "unit_price_cents", "country"];

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderLine {
    /// The order's number, unique in the shop.
    pub(crate) id: String,
    pub(crate) customer: String,
    /// What was ordered.
    pub(crate) sku: String,
    /// How many of it.
    pub(crate) quantity: u32,
    pub(crate) unit_price_cents: u64,
    /// Where it goes: a country's code of two letters.
    pub(crate) country: String,
}

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OrderFile {
    /// The good lines, in their order.
    pub(crate) orders: Vec<OrderLine>,
    /// Why other lines were left out, each with its number.
    pub(crate) bad_lines: Vec<BadLine>,
}

/// A line that is left out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    /// From 1, the header included.
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// Reads orders. A bad line is noted, and the rest goes on.
///
/// # Errors
/// When the source cannot be read at all, or lacks a column.
pub(crate) fn read(source: impl Read) -> Result<OrderFile> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(source);
    let headers = reader.headers()?.clone();
    if let Some(missing) = COLUMNS.iter().find(|column| !headers.iter().any(|header| header == **column)) {
        bail!("the first line names no column `{missing}`; the columns are {}", COLUMNS.join(", "));
    }
    let mut file = OrderFile { orders: Vec::new(), bad_lines: Vec::new() };
    let mut lines_by_id = HashMap::new();
    for record in reader.records() {
        let checked = match record {
            Err(error) if error.is_io_error() => return Err(error.into()),
            Err(error) => Err(BadLine { line: error.position().map_or(0, csv::Position::line), reason: reason(&error) }),
            Ok(record) => {
                let line = record.position().map_or(0, csv::Position::line);
                let read = record.deserialize(Some(&headers)).map_err(|error| reason(&error));
                read.and_then(check).map(|order| (line, order)).map_err(|reason| BadLine { line, reason })
            }
        };
        match checked {
            Err(bad) => file.bad_lines.push(bad),
            Ok((line, order)) => match lines_by_id.get(&order.id) {
                Some(first) => {
                    let reason = format!("order {} is in line {first} already", order.id);
                    file.bad_lines.push(BadLine { line, reason });
                }
                None => {
                    lines_by_id.insert(order.id.clone(), line);
                    file.orders.push(order);
                }
            },
        }
    }
    Ok(file)
}

/// The order's number becomes the business key of its workflow, so it must be fit for that. All else is for the workflow to judge.
fn check(order: OrderLine) -> Result<OrderLine, String> {
    match latchwork::name::check("order number", &order.id) {
        Ok(()) => Ok(order),
        Err(error) => Err(error.to_string()),
    }
}

fn reason(error: &csv::Error) -> String {
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => format!("it has {len} fields instead of {expected_len}"),
        ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|field| COLUMNS.get(usize::try_from(field).ok()?));
            column.map_or_else(|| err.kind().to_string(), |column| format!("{column}: {}", err.kind()))
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "id,customer,sku,quantity,unit_price_cents,country\n";

    fn read_lines(lines: &str) -> OrderFile {
        read(format!("{HEADER}{lines}").as_bytes()).expect("a file")
    }

    #[test]
    fn the_built_in_file_holds_a_thousand_orders_and_no_bad_line() {
        let file = read(BUILT_IN.as_bytes()).expect("the built-in file");
        assert_eq!((file.orders.len(), file.bad_lines), (1_000, Vec::new()));
        assert_eq!(file.orders[10].customer, "Brandt & Söhne, Kaffeehaus");
    }

    #[test]
    fn a_bad_line_is_noted_with_its_number_and_the_rest_goes_on() {
        let file = read_lines(
            "A-1,Ann,TEA,1,890,DE\nA-2,Bob,TEA,two,890,DE\nA-3,Cid,TEA\n ,Dora,TEA,1,890,DE\nA-1,Eve,TEA,1,890,FR\nA-4,Finn,TEA,-1,1,DE\n\
             A-5, Gus ,TEA,3,890,IT\n",
        );
        assert_eq!(
            file.orders.iter().map(|order| (&*order.id, &*order.customer)).collect::<Vec<_>>(),
            [("A-1", "Ann"), ("A-5", "Gus")]
        );
        let bad: Vec<_> = file.bad_lines.iter().map(|bad| (bad.line, bad.reason.as_str())).collect();
        assert_eq!(
            bad,
            [
                (3, "quantity: invalid digit found in string"),
                (4, "it has 3 fields instead of 6"),
                (5, "order number \"\" is refused: it is empty"),
                (6, "order A-1 is in line 2 already"),
                (7, "quantity: invalid digit found in string"),
            ]
        );
    }

    #[test]
    fn columns_are_found_by_name_and_a_missing_one_is_named() {
        let file = read(&b"country,id,quantity,sku,customer,unit_price_cents\nDE,A-1,2,TEA,Ann,890\n"[..]).expect("a file");
        assert_eq!((file.orders[0].country.as_str(), file.orders[0].quantity), ("DE", 2));
        let error = read(&b"id,customer\nA-1,Ann\n"[..]).expect_err("columns are missing");
        assert!(error.to_string().contains("no column `sku`"), "{error}");
    }

    #[test]
    fn a_line_that_is_not_utf_8_is_noted() {
        let file = read(&[HEADER.as_bytes(), b"A-1,\xff,TEA,1,890,DE\nA-2,Bob,TEA,1,890,DE\n"].concat()[..]).expect("a file");
        assert_eq!(file.bad_lines, [BadLine { line: 2, reason: "it is not UTF-8".to_owned() }]);
        assert_eq!(file.orders.len(), 1);
    }
}
