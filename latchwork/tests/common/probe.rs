use super::{Gate, StepContext, StepError, StepResult};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

/// A run of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub step: String,
    pub key: String,
    pub attempt: u32,
}

/// Sees the runs of all bodies that call [`step`], and steers them. Clones are the same probe; it outlives hosts, as the world outside does.
#[derive(Clone, Debug, Default)]
pub struct Probe(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    runs: Vec<Run>,
    ended: Vec<String>,
    gates: HashMap<String, Gate>,
    failures: HashMap<String, usize>,
    now: usize,
    most: usize,
}

impl Probe {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while it is held")
    }

    /// Bodies of this step wait at a gate from now on, after their run was noted.
    pub fn hold(&self, step: &str) -> Gate {
        let gate = Gate::closed();
        self.state().gates.insert(step.to_owned(), gate.clone());
        gate
    }

    /// The next so many runs of this step fail.
    pub fn fail(&self, step: &str, times: usize) {
        self.state().failures.insert(step.to_owned(), times);
    }

    /// How often bodies of this step began.
    pub fn runs(&self, step: &str) -> usize {
        self.state().runs.iter().filter(|run| run.step == step).count()
    }

    /// All runs, in their order.
    pub fn all(&self) -> Vec<Run> {
        self.state().runs.clone()
    }

    /// The steps whose bodies began, in their order.
    pub fn steps(&self) -> Vec<String> {
        self.state().runs.iter().map(|run| run.step.clone()).collect()
    }

    /// How often bodies of this step came to their own end.
    pub fn ended(&self, step: &str) -> usize {
        self.state().ended.iter().filter(|ended| *ended == step).count()
    }

    /// How often each idempotency key of this step was seen.
    pub fn keys(&self, step: &str) -> BTreeMap<String, usize> {
        let mut keys = BTreeMap::new();
        for run in self.state().runs.iter().filter(|run| run.step == step) {
            *keys.entry(run.key.clone()).or_default() += 1;
        }
        keys
    }

    /// How many bodies are between their begin and their end now; one whose future was dropped is not.
    pub fn inside(&self) -> usize {
        self.state().now
    }

    /// The most bodies that were between their begin and their end at the same time.
    pub fn most_at_once(&self) -> usize {
        self.state().most
    }

    async fn run(&self, cx: &StepContext) -> StepResult<()> {
        /// Counts down also when the body's future is dropped.
        struct Inside(Probe);
        impl Drop for Inside {
            fn drop(&mut self) {
                self.0.state().now -= 1;
            }
        }

        let name = cx.step().to_owned();
        let gate = {
            let mut state = self.state();
            state.runs.push(Run { step: name.clone(), key: cx.idempotency_key().to_owned(), attempt: cx.attempt() });
            state.now += 1;
            state.most = state.most.max(state.now);
            state.gates.get(&name).cloned()
        };
        let inside = Inside(self.clone());
        match gate {
            Some(gate) => gate.pass().await,
            None => tokio::task::yield_now().await,
        }
        drop(inside);
        let mut state = self.state();
        if let Some(left) = state.failures.get_mut(&name)
            && *left > 0
        {
            *left -= 1;
            return Err(StepError::from(format!("{name} was told to fail")));
        }
        state.ended.push(name);
        Ok(())
    }
}

/// What a step's body does in these tests: shows itself to the probe, and does what that says.
pub async fn step(cx: &StepContext) -> StepResult<()> {
    cx.service::<Probe>()?.run(cx).await
}
