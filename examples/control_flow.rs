//! Control flow: branches at the same time, loops, choices, a jump, a race. A kitchen makes a meal, on the task of its caller, who waits for it.
//!
//! `cargo run --example control_flow`

use std::time::Duration;

use anyhow::Result;
use latchwork::prelude::*;

#[derive(Clone, Default, Serialize, Deserialize)]
struct Meal {
    dishes: Vec<String>,
    cooked: Vec<String>,
    guests: u32,
    seated: u32,
    salt: u32,
    dessert: String,
}

struct MakeMeal;

impl Workflow for MakeMeal {
    type Data = Meal;
    const ID: &'static str = "make meal";

    fn build(&self, flow: &mut WorkflowBuilder<Meal>) {
        // Both branches run at the same time, and are joined.
        flow.parallel("prepare", |all| {
            all.branch("kitchen", |kitchen| {
                // Two dishes at a time. Inside, closures see the data and the item.
                let dishes = |meal: &Meal| meal.dishes.clone();
                kitchen.for_each("dishes", dishes, cook_dish).at_most(2)
            });
            all.branch("table", |table| {
                table.repeat_while(
                    "guests at the door?",
                    |meal| meal.seated < meal.guests,
                    |body| body.run("seat a guest", async |_, _| Ok(())).output(|(), meal| meal.seated += 1),
                );
            });
        });
        // Back to an earlier step, until it is right.
        flow.run("taste", async |meal, _cx| {
            println!("salt: {}", meal.salt);
            Ok(())
        });
        flow.when(
            "too bland?",
            |meal| meal.salt < 3,
            |then| {
                then.run("add salt", async |_, _| Ok(())).output(|(), meal| meal.salt += 1);
                then.go_to("taste");
            },
        )
        .otherwise(|other| other.run("praise", async |_, _| Ok(())));
        // Whichever is there first; the other is given up.
        flow.first_of("dessert", |race| {
            race.branch("ice", |ice| ice.run("scoop ice", async |_, _| Ok("ice")).output(set_dessert));
            race.branch("soufflé", |soufflé| {
                soufflé.delay("an hour in the oven", Duration::from_hours(1));
                soufflé.run("serve soufflé", async |_, _| Ok("soufflé")).output(set_dessert)
            });
        });
    }
}

fn cook_dish(each: &mut WorkflowBuilder<latchwork::Each<Meal, String>>) {
    each.decide("hot or cold?", |(_meal, dish)| dish.clone())
        .case("salad", |cold| {
            cold.run("toss", async |(_meal, dish), _cx| Ok(format!("{dish}, tossed"))).output(|dish, meal| meal.cooked.push(dish))
        })
        .case_if(
            |dish| dish.ends_with("soup"),
            |soup| {
                soup.run("simmer", async |(_meal, dish), _cx| Ok(format!("{dish}, simmered")))
                    .output(|dish, meal| meal.cooked.push(dish))
            },
        )
        .otherwise(|other| {
            other
                .run("roast", async |(_meal, dish), _cx| Ok(format!("{dish}, roasted")))
                .output(|dish, meal| meal.cooked.push(dish))
        });
}

fn set_dessert(dessert: &str, meal: &mut Meal) {
    meal.dessert = dessert.to_owned();
}

#[tokio::main]
async fn main() -> Result<()> {
    let host =
        WorkflowHost::builder().use_local_locking().use_local_queue().use_memory_persistence().workflow(MakeMeal).start().await?;

    let dishes = ["salad", "leek soup", "carrots"].map(str::to_owned).to_vec();
    let meal = Meal { dishes, guests: 4, ..Meal::default() };
    let mut meal = host.run_workflow::<MakeMeal>(meal).without_persistence().timeout(Duration::from_secs(30)).await?;

    meal.cooked.sort();
    assert_eq!(meal.cooked, ["carrots, roasted", "leek soup, simmered", "salad, tossed"]);
    assert_eq!((meal.seated, meal.salt, meal.dessert.as_str()), (4, 3, "ice"));
    println!("{} guests had {} dishes and {}", meal.seated, meal.cooked.len(), meal.dessert);
    host.stop().await?;
    Ok(())
}
