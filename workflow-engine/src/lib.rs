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
mod node;
mod policy;
mod services;

pub use body::{ExecutionResult, StepBody, StepContext, StepFn};
pub use builder::*;
pub use compression::{CompressionError, decompress};
pub use cron::{Cron, MissedTicks};
pub use data::{AnyData, Each, Scope, WorkflowData};
pub use definition::{AfterCancel, Definition, DefinitionError, DefinitionProblem, ProblemKind, shape_difference};
pub use error::{StepError, StepResult};
pub use host::{Completion, HostError, InstanceHandle, Start, StopReport, WorkflowHandle, WorkflowHost, WorkflowHostBuilder};
pub use hub::LocalEventHub;
pub use node::{HealthReport, PollerHealth, RetentionHealth, ServiceHealth};
pub use policy::{Durability, GivingUp, Retry};
pub use services::{ServiceMissing, Services};
