use latchwork_core::name::InvalidName;
use std::{fmt, panic::Location, sync::Arc};

/// A workflow's definition is not sound. Lists everything that was found, one problem per line.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.lines())]
pub struct DefinitionError {
    problems: Vec<DefinitionProblem>,
}

impl DefinitionError {
    /// Sorted as a reader of the source meets them.
    pub(super) fn new(mut problems: Vec<DefinitionProblem>) -> Self {
        problems.sort_by_key(|problem| problem.at.map(|at| (at.file(), at.line(), at.column())));
        Self { problems }
    }

    /// The problems, in the order of the source; at least one.
    #[must_use]
    pub fn problems(&self) -> &[DefinitionProblem] {
        &self.problems
    }

    /// Never: the code has to be mended.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }

    fn lines(&self) -> String {
        self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

/// One problem of a definition.
#[derive(Clone, Debug)]
pub struct DefinitionProblem {
    pub(super) workflow: Arc<str>,
    pub(super) version: u32,
    pub(super) step: Option<Arc<str>>,
    pub(super) at: Option<&'static Location<'static>>,
    pub(super) kind: ProblemKind,
}

impl DefinitionProblem {
    /// The workflow's id.
    #[must_use]
    pub fn workflow(&self) -> &str {
        &self.workflow
    }

    /// The workflow's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The step's name; `None` when the workflow as a whole is meant.
    #[must_use]
    pub fn step(&self) -> Option<&str> {
        self.step.as_deref()
    }

    /// The builder call; `None` when the workflow as a whole is meant.
    #[must_use]
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.at
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &ProblemKind {
        &self.kind
    }
}

impl fmt::Display for DefinitionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workflow `{}` version {}", self.workflow, self.version)?;
        if let Some(step) = &self.step {
            write!(f, ", step `{step}`")?;
        }
        if let Some(at) = self.at {
            write!(f, " ({}:{})", at.file(), at.line())?;
        }
        write!(f, ": {}", self.kind)
    }
}

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The id, or the name of a step, a branch or an event breaks the rules for names.
    #[error("{reason}")]
    BadName {
        /// The rule.
        reason: InvalidName,
    },
    /// The version is 0.
    #[error("versions begin with 1; set `const VERSION`")]
    VersionZero,
    /// There is no step at all.
    #[error("it has no steps; `build` must add at least one")]
    NoSteps,
    /// Another step has the same name.
    #[error(
        "the step at {}:{} has the same name; names are unique in a workflow, as running instances are tied to them",
        .first.file(),
        .first.line()
    )]
    DuplicateName {
        /// Where the other step is declared.
        first: &'static Location<'static>,
    },
    /// Two branches of a parallel have the same name.
    #[error("another branch is named `{branch}`; branch names are unique in a parallel")]
    DuplicateBranch {
        /// The name.
        branch: String,
    },
    /// A go-to names no step of the workflow.
    #[error("there is no step `{target}` to go to")]
    UnknownTarget {
        /// The name.
        target: String,
    },
    /// A go-to leads into a branch that it does not stand in.
    #[error(
        "`{target}` stands in a branch of `{owner}`, and a jump cannot lead into a branch, past the step that decides about it; \
         go to `{owner}`, or to another step of this block or of one around it"
    )]
    TargetInBranch {
        /// The step to go to.
        target: String,
        /// The step that the target's branch belongs to.
        owner: String,
    },
    /// A go-to leads out of a branch that runs beside others.
    #[error(
        "the jump to `{target}` would leave a branch of the {kind} `{owner}`; others run beside it and are to be joined, so a jump must stay inside"
    )]
    TargetOutside {
        /// The step to go to.
        target: String,
        /// The step whose branch would be left.
        owner: String,
        /// The kind of that step.
        kind: &'static str,
    },
    /// No way leads to the step.
    #[error("it can never be reached: what is before it always ends or goes elsewhere, and no jump leads here")]
    Unreachable,
    /// A go-to closes a circle that nothing leaves.
    #[error("going back to `{target}` closes a circle that can neither wait, end nor branch, so it would run for ever")]
    EndlessCycle {
        /// The step to go to.
        target: String,
    },
    /// A loop whose body changes nothing.
    #[error("its body has no step, wait or delay, so the loop's test can never change")]
    LoopWithoutSteps,
    /// A for-each, a branch of a parallel, or the branch for a step's values has no steps; a parallel has no branches; a `decide` no cases.
    #[error("{what}")]
    Empty {
        /// What is empty, as a sentence.
        what: &'static str,
    },
    /// An outcome's value cannot be written as JSON.
    #[error("the outcome's value cannot be written as JSON: {reason}")]
    BadOutcome {
        /// The reason.
        reason: String,
    },
    /// Two branches of a step stand for the same outcome.
    #[error("there are two branches for the outcome {value}")]
    OutcomeTwice {
        /// The value, as JSON.
        value: String,
    },
    /// Something that can be said once was said twice.
    #[error("`{call}` is called twice on it, and would replace what the first call said")]
    Twice {
        /// The builder's method.
        call: &'static str,
    },
    /// A cron pattern or a time zone that cannot be read.
    #[error("{reason}")]
    BadCron {
        /// The reason.
        reason: String,
    },
    /// A branch for a time-out that is not set.
    #[error("it has an `on_timeout` without a `timeout`, so the branch would never run")]
    NoTimeout,
}
