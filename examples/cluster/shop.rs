//! What surrounds the workflow: the shop's catalogue, and the services of others. Stand-ins that answer as the real ones would, after
//! a few milliseconds, and the same each time.

use std::time::Duration;

use crate::orders::OrderLine;

/// What the shop sells, with prices in cents.
const CATALOGUE: [(&str, u64); 20] = [
    ("TEA-ASSAM-250", 890),
    ("TEA-SENCHA-100", 1250),
    ("TEA-ROOIBOS-500", 1490),
    ("COFFEE-CRESTA-1000", 1890),
    ("COFFEE-DECAF-500", 1190),
    ("COFFEE-ESPRESSO-250", 790),
    ("GRINDER-HAND", 6490),
    ("GRINDER-ELECTRIC", 18900),
    ("KETTLE-GOOSENECK", 7990),
    ("KETTLE-1L", 3490),
    ("FILTER-V60-100", 590),
    ("FILTER-METAL", 2290),
    ("MUG-STONEWARE", 1490),
    ("MUG-ENAMEL", 990),
    ("SCALE-DIGITAL", 3990),
    ("TIMER-KITCHEN", 1290),
    ("POT-TEA-800", 4290),
    ("POT-MOKA-6", 3190),
    ("SPOON-MEASURE", 490),
    ("GIFT-BOX-SMALL", 690),
];

/// Where the carrier goes.
const COUNTRIES: [&str; 14] = ["AT", "CZ", "DE", "DK", "ES", "FI", "FR", "HU", "IE", "IT", "NL", "PL", "PT", "SE"];

/// More of one thing is a matter for the sales department.
const LARGEST_QUANTITY: u32 = 1_000;

/// Why the shop cannot take an order; `None` when it can.
pub(crate) fn objection(order: &OrderLine) -> Option<String> {
    let OrderLine { sku, quantity, unit_price_cents, country, .. } = order;
    let Some((_, price)) = CATALOGUE.iter().find(|(known, _)| known == sku) else {
        return Some(format!("there is no article {sku}"));
    };
    if *quantity == 0 || *quantity > LARGEST_QUANTITY {
        return Some(format!("a quantity of {quantity} is not for the web shop: it takes 1 to {LARGEST_QUANTITY}"));
    }
    if unit_price_cents != price {
        return Some(format!("{sku} was ordered for {unit_price_cents} cents, and costs {price}"));
    }
    if !COUNTRIES.contains(&country.as_str()) {
        return Some(format!("nothing is shipped to {country}"));
    }
    None
}

/// The stock keeper.
#[derive(Debug)]
pub(crate) struct Stock;

impl Stock {
    /// Sets goods aside, and gives the reservation's number. A repeated request, known by its key, gets the same.
    pub(crate) async fn reserve(&self, sku: &str, request: &str) -> String {
        tokio::time::sleep(Duration::from_millis(3)).await;
        format!("R-{sku}-{:08x}", hash(request))
    }
}

/// The payment service. Flaky: for one order in five the first one to three tries get no answer.
#[derive(Debug)]
pub(crate) struct Payments;

impl Payments {
    /// Takes money, once for each request, and gives the receipt's number.
    ///
    /// The real one does not know how often it was asked; the stand-in is told, so that it fails the same way in each run.
    pub(crate) async fn charge(&self, order: &OrderLine, request: &str, attempt: u32) -> Result<String, &'static str> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if attempt <= unanswered_tries(&order.id) {
            return Err("the payment service did not answer in time");
        }
        Ok(format!("P-{:08x}", hash(request)))
    }
}

fn unanswered_tries(order: &str) -> u32 {
    match hash(order) % 20 {
        0 | 1 => 1,
        2 => 2,
        3 => 3,
        _ => 0,
    }
}

/// The carrier.
#[derive(Debug)]
pub(crate) struct Carrier;

impl Carrier {
    /// Takes parcels along, and gives the tracking number.
    pub(crate) async fn ship(&self, country: &str, parcels: u32, request: &str) -> String {
        tokio::time::sleep(Duration::from_millis(2)).await;
        format!("{country}-{parcels}-{:08x}", hash(request))
    }
}

/// FNV-1a, finished so that neighbours are far apart. The same in each process.
fn hash(text: &str) -> u32 {
    let mixed = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (mixed ^ (mixed >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in() -> Vec<OrderLine> {
        crate::orders::read(crate::orders::BUILT_IN.as_bytes()).expect("the built-in file").orders
    }

    #[test]
    fn a_handful_of_the_built_in_orders_is_refused_for_reasons_of_each_kind() {
        let objections: Vec<_> = built_in().iter().filter_map(objection).collect();
        assert_eq!(objections.len(), 14);
        for reason in ["there is no article", "a quantity of 0", "a quantity of 5000", "was ordered for", "nothing is shipped to"]
        {
            assert!(objections.iter().any(|objection| objection.contains(reason)), "{reason}: {objections:?}");
        }
    }

    #[test]
    fn about_one_payment_in_five_is_flaky_and_none_for_ever() {
        let tries: Vec<_> = built_in().iter().map(|order| unanswered_tries(&order.id)).collect();
        let flaky = tries.iter().filter(|tries| **tries > 0).count();
        assert!((150..250).contains(&flaky), "{flaky}");
        assert_eq!(tries.iter().max(), Some(&3));
    }
}
