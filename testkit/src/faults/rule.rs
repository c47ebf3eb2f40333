use super::Gate;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded<C> {
    /// Which call.
    pub call: C,
    /// What it was about: an instance, a lock's key, an event's name and key; empty where there is no such thing.
    pub about: String,
}

/// What a wrapper does to its calls, and which were made. Clones are handles to the same.
pub struct Faults<C, F>(Arc<Mutex<State<C, F>>>);

struct State<C, F> {
    rules: Vec<Known<C, F>>,
    gates: Vec<Gate>,
    calls: Vec<Recorded<C>>,
}

struct Known<C, F> {
    call: Option<C>,
    about: Option<String>,
    skip: usize,
    left: usize,
    act: Act<F>,
}

#[derive(Clone)]
pub(super) enum Act<F> {
    Fail(F),
    LoseAnswer(F),
    Hold(Gate),
    HoldAnswer(Gate),
    Swallow,
    Panic,
}

impl<C, F> Clone for Faults<C, F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C, F> Default for Faults<C, F> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { rules: Vec::new(), gates: Vec::new(), calls: Vec::new() })))
    }
}

impl<C, F> fmt::Debug for Faults<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Faults").field("rules", &state.rules.len()).field("calls", &state.calls.len()).finish()
    }
}

impl<C, F> Faults<C, F> {
    fn state(&self) -> MutexGuard<'_, State<C, F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Copy + PartialEq, F: Clone> Faults<C, F> {
    /// Begins a rule about these calls.
    pub fn on(&self, call: C) -> Rule<'_, C, F> {
        self.rule(Some(call))
    }

    /// Begins a rule about all calls.
    pub fn on_any(&self) -> Rule<'_, C, F> {
        self.rule(None)
    }

    fn rule(&self, call: Option<C>) -> Rule<'_, C, F> {
        Rule { faults: self, call, about: None, skip: 0, times: usize::MAX }
    }

    /// Forgets all rules, and opens all gates. What was counted stays.
    pub fn clear(&self) {
        let gates = {
            let mut state = self.state();
            state.rules.clear();
            std::mem::take(&mut state.gates)
        };
        for gate in gates {
            gate.open();
        }
    }

    /// How often this was called, failed calls included.
    #[must_use]
    pub fn count(&self, call: C) -> usize {
        self.state().calls.iter().filter(|recorded| recorded.call == call).count()
    }

    /// The calls so far, in their order, failed ones included.
    #[must_use]
    pub fn calls(&self) -> Vec<Recorded<C>> {
        self.state().calls.clone()
    }

    /// Enters a call, and says what is to become of it, rule by rule.
    fn enter(&self, call: C, about: &str) -> Vec<Act<F>> {
        let mut state = self.state();
        state.calls.push(Recorded { call, about: about.to_owned() });
        let mut acts = Vec::new();
        for rule in &mut state.rules {
            let is_meant = rule.call.is_none_or(|meant| meant == call)
                && rule.about.as_deref().is_none_or(|part| about.contains(part))
                && rule.left > 0;
            if !is_meant {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.left -= 1;
            acts.push(rule.act.clone());
        }
        acts
    }

    /// To be awaited before the call is passed on: holds it, and fails it.
    pub(super) async fn before(&self, call: C, about: &str) -> Result<Answer<F>, F> {
        let mut answer = Answer { acts: Vec::new(), swallowed: false };
        for act in self.enter(call, about) {
            match act {
                Act::Fail(fault) => return Err(fault),
                Act::Hold(gate) => gate.pass().await,
                #[allow(clippy::panic, reason = "this is the fault that was asked for")]
                Act::Panic => std::panic::panic_any("a panic on command"),
                Act::Swallow => answer.swallowed = true,
                Act::LoseAnswer(_) | Act::HoldAnswer(_) => answer.acts.push(act),
            }
        }
        Ok(answer)
    }
}

/// What is still to be done to a call's answer.
pub(super) struct Answer<F> {
    acts: Vec<Act<F>>,
    /// Whether the call is not to be passed on, and to be answered as if it had been.
    pub(super) swallowed: bool,
}

impl<F> Answer<F> {
    /// To be awaited when the call was done.
    pub(super) async fn after(self) -> Result<(), F> {
        for act in self.acts {
            match act {
                Act::LoseAnswer(fault) => return Err(fault),
                Act::HoldAnswer(gate) => gate.pass().await,
                Act::Fail(_) | Act::Hold(_) | Act::Swallow | Act::Panic => {}
            }
        }
        Ok(())
    }
}

/// A rule in the making: it stands when it is told what to do.
#[must_use = "a rule stands when it is told what to do: `fail`, `lose_answer`, `hold`, `hold_answer`"]
pub struct Rule<'f, C, F> {
    faults: &'f Faults<C, F>,
    call: Option<C>,
    about: Option<String>,
    skip: usize,
    times: usize,
}

impl<C: fmt::Debug, F> fmt::Debug for Rule<'_, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("call", &self.call).field("about", &self.about).finish_non_exhaustive()
    }
}

impl<C: Copy + PartialEq, F: Clone> Rule<'_, C, F> {
    /// Only calls that are about something that contains this text: an instance's id, a part of a lock's key.
    pub fn about(mut self, part: &str) -> Self {
        self.about = Some(part.to_owned());
        self
    }

    /// Lets the first so many pass.
    pub fn skip(mut self, calls: usize) -> Self {
        self.skip = calls;
        self
    }

    /// Only so many, then no more.
    pub fn times(mut self, calls: usize) -> Self {
        self.times = calls;
        self
    }

    /// Only one, then no more.
    pub fn once(self) -> Self {
        self.times(1)
    }

    fn stand(self, act: Act<F>) {
        let gate = match &act {
            Act::Hold(gate) | Act::HoldAnswer(gate) => Some(gate.clone()),
            Act::Fail(_) | Act::LoseAnswer(_) | Act::Swallow | Act::Panic => None,
        };
        let mut state = self.faults.state();
        state.gates.extend(gate);
        state.rules.push(Known { call: self.call, about: self.about, skip: self.skip, left: self.times, act });
    }

    /// They fail, and are not passed on.
    pub fn fail(self, fault: F) {
        self.stand(Act::Fail(fault));
    }

    /// They are passed on and done, and fail then: the connection was cut before the answer came.
    pub fn lose_answer(self, fault: F) {
        self.stand(Act::LoseAnswer(fault));
    }

    /// They wait at the gate before they are passed on.
    pub fn hold(self) -> Gate {
        let gate = Gate::closed();
        self.stand(Act::Hold(gate.clone()));
        gate
    }

    /// They are passed on and done, and their answer waits at the gate.
    pub fn hold_answer(self) -> Gate {
        let gate = Gate::closed();
        self.stand(Act::HoldAnswer(gate.clone()));
        gate
    }

    /// They panic, as the code of a provider should not.
    pub fn panic(self) {
        self.stand(Act::Panic);
    }

    pub(super) fn swallow_calls(self) {
        self.stand(Act::Swallow);
    }
}
