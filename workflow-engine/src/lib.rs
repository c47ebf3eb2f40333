#![doc = include_str!("../README.md")]

mod body;
pub mod builder;
mod compression;
mod cron;
mod data;
mod definition;
mod error;
mod host;
mod hub;
mod instance;
pub mod middleware;
mod node;
mod policy;
mod services;

#[doc(hidden)]
pub use body::ChildRequest;
pub use body::{ExecutionResult, StepBody, StepContext, StepFn, TransactionGuard};
pub use builder::*;
pub use compression::{CompressionError, decompress};
pub use cron::{Cron, MissedTicks};
pub use data::{AnyData, Each, Scope, WorkflowData};
pub use definition::{AfterCancel, Definition, DefinitionError, DefinitionProblem, ProblemKind, shape_difference};
pub use error::{StepError, StepResult};
pub use host::{
    Completion, HostError, InstanceHandle, Orphan, Run, Start, StopReport, WorkflowHandle, WorkflowHost, WorkflowHostBuilder,
    orphans,
};
pub use hub::LocalEventHub;
pub use middleware::{Next, StepMiddleware, WorkflowContext, WorkflowMiddleware};
pub use node::{HealthReport, PollerHealth, RetentionHealth, ServiceHealth};
pub use policy::{Durability, GivingUp, Retry};
pub use services::{ServiceMissing, Services};
