//! A saga: three bookings, of which the last one fails. What was booked is undone, the last first, and the whole is tried again; in the end the traveller
//! is told.
//!
//! `cargo run --example saga`

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::Result;
use latchwork::prelude::*;

#[derive(Clone, Default, Serialize, Deserialize)]
struct Trip {
    flight: Option<String>,
    hotel: Option<String>,
    car: Option<String>,
    log: Vec<String>,
}

/// A step that is a type: inputs set its fields, outputs read them.
#[derive(Default)]
struct CancelFlight {
    number: String,
}

impl StepBody for CancelFlight {
    async fn run(&mut self, _cx: &StepContext) -> StepResult {
        println!("  flight {} is cancelled", self.number);
        Ok(ExecutionResult::next())
    }
}

/// A rental that has a car only now and then.
struct Rental {
    asked: AtomicU32,
    has_one_at: u32,
}

async fn rent(_trip: &Trip, cx: &StepContext) -> StepResult<String> {
    let rental = cx.service::<Rental>()?;
    let asked = rental.asked.fetch_add(1, Ordering::Relaxed) + 1;
    if asked < rental.has_one_at {
        return Err("no car is left".into());
    }
    Ok(format!("car {asked}"))
}

struct Book;

impl Workflow for Book {
    type Data = Trip;
    const ID: &'static str = "book";

    fn build(&self, flow: &mut WorkflowBuilder<Trip>) {
        flow.saga("trip", |saga| {
            saga.run("book flight", async |_, cx| {
                println!("  a flight, with the key {}", cx.idempotency_key());
                Ok("LW 7".to_owned())
            })
            .output(|flight, trip| trip.flight = Some(flight))
            .compensate_with::<CancelFlight>(|step, trip| step.number = trip.flight.clone().unwrap_or_default());
            saga.run("book hotel", async |_, _| Ok("Hotel Lock".to_owned()))
                .output(|hotel, trip| trip.hotel = Some(hotel))
                .compensate_sequence(|undo| {
                    undo.run("cancel hotel", async |_, _| Ok(())).output(|(), trip| trip.log.push("hotel cancelled".into()));
                });
            // In a saga a step is tried again by its own policy first; here the first failure decides.
            saga.run("rent car", rent).output(|car, trip| trip.car = Some(car)).on_error(Retry::never()).needs::<Rental>();
        })
        .on_error(Retry::fixed(Duration::from_millis(50)).max_attempts(3).then_continue());
        flow.when(
            "complete?",
            |trip| trip.car.is_some(),
            |then| {
                then.run("wish a good trip", async |_, _| Ok(())).output(|(), trip| trip.log.push("booked".into()));
            },
        )
        .otherwise(|other| {
            other.run("apologise", async |_, _| Ok(())).output(|(), trip| trip.log.push("not booked".into()));
        });
    }
}

async fn book(has_one_at: u32) -> Result<Trip> {
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_memory_persistence()
        .service(Rental { asked: AtomicU32::new(0), has_one_at })
        .workflow(Book)
        .start()
        .await?;
    let trip = host.start_workflow::<Book>(Trip::default()).await?;
    let trip = trip.completion().timeout(Duration::from_secs(30)).await?;
    host.stop().await?;
    Ok(trip)
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("there is a car at the second attempt:");
    assert_eq!(book(2).await?.log, ["hotel cancelled", "booked"]);
    println!("there is none:");
    assert_eq!(book(9).await?.log, ["hotel cancelled", "hotel cancelled", "hotel cancelled", "not booked"]);
    println!("each attempt was undone, each compensation ran once");
    Ok(())
}
