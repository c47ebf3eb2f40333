//! The workflow: what happens to an order, from the basket to the truck.

use std::time::Duration;

use latchwork::prelude::*;

use crate::{
    ledger::Ledger,
    orders::OrderLine,
    shop::{Carrier, Payments, Stock, objection},
};

/// The event that the warehouse publishes, keyed by the order's number.
pub(crate) const PACKED: &str = "packed";

/// The steps with an effect, each of which leaves one line in the ledger.
pub(crate) const EFFECTS: [&str; 5] = [VALIDATE, RESERVE, CHARGE, HAND_OVER, SHIP];

pub(crate) const VALIDATE: &str = "validate";
pub(crate) const RESERVE: &str = "reserve stock";
pub(crate) const CHARGE: &str = "charge";
pub(crate) const HAND_OVER: &str = "hand to the warehouse";
pub(crate) const SHIP: &str = "ship";

/// An order on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) line: OrderLine,
    pub(crate) reservation: Option<String>,
    pub(crate) receipt: Option<String>,
    pub(crate) parcels: u32,
    pub(crate) tracking: Option<String>,
}

impl From<OrderLine> for Order {
    fn from(line: OrderLine) -> Self {
        Self { line, reservation: None, receipt: None, parcels: 0, tracking: None }
    }
}

/// What the warehouse says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Packed {
    pub(crate) parcels: u32,
}

/// One instance for each order; its business key is the order's number.
#[derive(Debug)]
pub(crate) struct FulfilOrder;

impl Workflow for FulfilOrder {
    type Data = Order;
    const ID: &'static str = "fulfil-order";

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        // An order that the shop cannot take fails, with the objection as the reason.
        flow.run(VALIDATE, validate).needs::<Ledger>().on_error(Retry::never().then_terminate());
        flow.parallel("prepare", |both| {
            both.branch("goods", |goods| {
                goods.run(RESERVE, reserve).needs::<Stock>().output(|reservation, order| order.reservation = Some(reservation));
            });
            both.branch("money", |money| {
                money
                    .run(CHARGE, charge)
                    .needs::<Payments>()
                    .output(|receipt, order| order.receipt = Some(receipt))
                    .on_error(Retry::exponential(Duration::from_millis(100)).max_attempts(6).then_terminate());
            });
        });
        flow.run(HAND_OVER, hand_over);
        flow.wait_for(PACKED, |order| order.line.id.clone()).output(|packed: Packed, order| order.parcels = packed.parcels);
        flow.delay("the truck comes", Duration::from_millis(200));
        flow.run(SHIP, ship).needs::<Carrier>().output(|tracking, order| order.tracking = Some(tracking));
    }
}

async fn validate(order: &Order, cx: &StepContext) -> StepResult<()> {
    match objection(&order.line) {
        Some(objection) => Err(StepError::permanent(objection)),
        None => done(order, cx).await,
    }
}

async fn reserve(order: &Order, cx: &StepContext) -> StepResult<String> {
    let reservation = cx.service::<Stock>()?.reserve(&order.line.sku, cx.idempotency_key()).await;
    done(order, cx).await?;
    Ok(reservation)
}

async fn charge(order: &Order, cx: &StepContext) -> StepResult<String> {
    let receipt = cx.service::<Payments>()?.charge(&order.line, cx.idempotency_key(), cx.attempt()).await?;
    done(order, cx).await?;
    Ok(receipt)
}

/// The ledger is also the list that the warehouse works from.
async fn hand_over(order: &Order, cx: &StepContext) -> StepResult<()> {
    done(order, cx).await
}

async fn ship(order: &Order, cx: &StepContext) -> StepResult<String> {
    let tracking = cx.service::<Carrier>()?.ship(&order.line.country, order.parcels, cx.idempotency_key()).await;
    done(order, cx).await?;
    Ok(tracking)
}

/// Each body ends with the line that says so.
async fn done(order: &Order, cx: &StepContext) -> StepResult<()> {
    cx.service::<Ledger>()?.record(&order.line.id, cx).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        let definition = latchwork::define(&FulfilOrder).expect("a sound definition");
        assert_eq!((definition.id(), definition.version()), ("fulfil-order", 1));
    }
}
