//! The workflows that are measured.

use latchwork::prelude::*;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Empty {}

fn steps(flow: &mut WorkflowBuilder<Empty>, count: usize) {
    for number in 0..count {
        flow.run(&format!("step {number}"), async |_, _| Ok(()));
    }
}

/// Ten empty steps.
pub(crate) struct Ten;

impl Workflow for Ten {
    type Data = Empty;
    const ID: &'static str = "ten";

    fn build(&self, flow: &mut WorkflowBuilder<Empty>) {
        steps(flow, 10);
    }
}

/// Five empty steps.
pub(crate) struct Five;

impl Workflow for Five {
    type Data = Empty;
    const ID: &'static str = "five";

    fn build(&self, flow: &mut WorkflowBuilder<Empty>) {
        steps(flow, 5);
    }
}

/// As many empty steps as it is told.
pub(crate) struct Sequence(pub(crate) usize);

impl Workflow for Sequence {
    type Data = Empty;
    const ID: &'static str = "sequence";

    fn build(&self, flow: &mut WorkflowBuilder<Empty>) {
        steps(flow, self.0);
    }
}

/// As many empty steps as it is told, of which only the last one asks for a checkpoint.
pub(crate) struct Replayable(pub(crate) usize);

impl Workflow for Replayable {
    type Data = Empty;
    const ID: &'static str = "replayable";

    fn build(&self, flow: &mut WorkflowBuilder<Empty>) {
        flow.default_durability(Durability::Replayable);
        steps(flow, self.0);
        flow.run("last", async |_, _| Ok(())).persist_on_close();
    }
}

/// An empty step, as often as it is told: an instance of as many pointers.
pub(crate) struct Rounds(pub(crate) u32);

impl Workflow for Rounds {
    type Data = Count;
    const ID: &'static str = "rounds";

    fn build(&self, flow: &mut WorkflowBuilder<Count>) {
        let most = self.0;
        flow.repeat_while(
            "again",
            move |count| count.items < most,
            |body| {
                body.run("step", async |_, _| Ok(())).output(|(), count| count.items += 1);
            },
        );
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) key: String,
}

/// Waits for an event.
pub(crate) struct Waits;

impl Workflow for Waits {
    type Data = Key;
    const ID: &'static str = "waits";

    fn build(&self, flow: &mut WorkflowBuilder<Key>) {
        flow.wait_for("told", |data| data.key.clone());
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) items: u32,
}

/// An empty step for each of so many items, and a join.
pub(crate) struct Items;

impl Workflow for Items {
    type Data = Count;
    const ID: &'static str = "items";

    fn build(&self, flow: &mut WorkflowBuilder<Count>) {
        flow.for_each(
            "items",
            |count| (0..count.items).collect(),
            |each| {
                each.run("item", async |_, _| Ok(()));
            },
        );
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Nap {
    /// Milliseconds from the start of the clock to the moment to wake.
    pub(crate) wake: u64,
    /// Milliseconds to sleep, found by the first step.
    pub(crate) left: u64,
}

/// Sleeps until a given moment, and notes how late it woke.
pub(crate) struct Sleeper;

/// When the clock of the naps was started, and how late each woke.
#[derive(Clone)]
pub(crate) struct Naps {
    pub(crate) start: Instant,
    pub(crate) late: Arc<Mutex<Vec<Duration>>>,
}

impl Workflow for Sleeper {
    type Data = Nap;
    const ID: &'static str = "sleeper";

    fn build(&self, flow: &mut WorkflowBuilder<Nap>) {
        flow.run("sleep", async |nap, cx| {
            let naps = cx.service::<Naps>()?;
            Ok(Duration::from_millis(nap.wake).saturating_sub(naps.start.elapsed()).as_millis() as u64)
        })
        .output(|left, nap| nap.left = left);
        flow.delay_by("nap", |nap| Duration::from_millis(nap.left));
        flow.run("wake", async |nap, cx| {
            let naps = cx.service::<Naps>()?;
            let late = naps.start.elapsed().saturating_sub(Duration::from_millis(nap.wake));
            naps.late.lock().unwrap_or_else(PoisonError::into_inner).push(late);
            Ok(())
        });
    }
}

/// One step that notes when it ran.
pub(crate) struct First;

/// Told when the step ran.
#[derive(Clone)]
pub(crate) struct Ran(pub(crate) tokio::sync::mpsc::UnboundedSender<Instant>);

impl Workflow for First {
    type Data = Empty;
    const ID: &'static str = "first";

    fn build(&self, flow: &mut WorkflowBuilder<Empty>) {
        flow.run("first", async |_, cx| {
            let _ = cx.service::<Ran>()?.0.send(Instant::now());
            Ok(())
        });
    }
}
