#![doc = include_str!("../guide/index.md")]

#[doc = include_str!("../guide/getting-started.md")]
///
/// ---
///
/// Next: [Concepts](concepts). All pages: [the guide](crate::guide).
pub mod getting_started {}

#[doc = include_str!("../guide/concepts.md")]
///
/// ---
///
/// Next: [Steps and data](steps_and_data). All pages: [the guide](crate::guide).
pub mod concepts {}

#[doc = include_str!("../guide/steps-and-data.md")]
///
/// ---
///
/// Next: [Control flow](control_flow). All pages: [the guide](crate::guide).
pub mod steps_and_data {}

#[doc = include_str!("../guide/control-flow.md")]
///
/// ---
///
/// Next: [Time](time). All pages: [the guide](crate::guide).
pub mod control_flow {}

#[doc = include_str!("../guide/time.md")]
///
/// ---
///
/// Next: [Events](events). All pages: [the guide](crate::guide).
pub mod time {}

#[doc = include_str!("../guide/events.md")]
///
/// ---
///
/// Next: [Activities and people](activities). All pages: [the guide](crate::guide).
pub mod events {}

#[doc = include_str!("../guide/activities.md")]
///
/// ---
///
/// Next: [Sub-workflows](sub_workflows). All pages: [the guide](crate::guide).
pub mod activities {}

#[doc = include_str!("../guide/sub-workflows.md")]
///
/// ---
///
/// Next: [Errors and retry](errors_and_retry). All pages: [the guide](crate::guide).
pub mod sub_workflows {}

#[doc = include_str!("../guide/errors-and-retry.md")]
///
/// ---
///
/// Next: [Sagas](sagas). All pages: [the guide](crate::guide).
pub mod errors_and_retry {}

#[doc = include_str!("../guide/sagas.md")]
///
/// ---
///
/// Next: [Transactional steps](transactional_steps). All pages: [the guide](crate::guide).
pub mod sagas {}

#[doc = include_str!("../guide/transactional-steps.md")]
///
/// ---
///
/// Next: [Versions and deployment](versions). All pages: [the guide](crate::guide).
pub mod transactional_steps {}

#[doc = include_str!("../guide/versions.md")]
///
/// ---
///
/// Next: [Running a host](running_a_host). All pages: [the guide](crate::guide).
pub mod versions {}

#[doc = include_str!("../guide/running-a-host.md")]
///
/// ---
///
/// Next: [Observing](observing). All pages: [the guide](crate::guide).
pub mod running_a_host {}

#[doc = include_str!("../guide/observing.md")]
///
/// ---
///
/// Next: [Testing](testing). All pages: [the guide](crate::guide).
pub mod observing {}

#[doc = include_str!("../guide/testing.md")]
///
/// ---
///
/// Next: [Locks alone](locks_alone). All pages: [the guide](crate::guide).
pub mod testing {}

#[doc = include_str!("../guide/locks-alone.md")]
///
/// ---
///
/// Next: [Coming from Workflow Core](coming_from_workflow_core). All pages: [the guide](crate::guide).
pub mod locks_alone {}

#[doc = include_str!("../guide/coming-from-workflow-core.md")]
///
/// ---
///
/// All pages: [the guide](crate::guide).
pub mod coming_from_workflow_core {}
