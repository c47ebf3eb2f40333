#![doc = include_str!("../guide/README.md")]

#[doc = include_str!("../guide/getting-started.md")]
pub mod getting_started {}

#[doc = include_str!("../guide/concepts.md")]
pub mod concepts {}

#[doc = include_str!("../guide/steps-and-data.md")]
pub mod steps_and_data {}

#[doc = include_str!("../guide/control-flow.md")]
pub mod control_flow {}

#[doc = include_str!("../guide/time.md")]
pub mod time {}

#[doc = include_str!("../guide/events.md")]
pub mod events {}

#[doc = include_str!("../guide/activities.md")]
pub mod activities {}

#[doc = include_str!("../guide/sub-workflows.md")]
pub mod sub_workflows {}

#[doc = include_str!("../guide/errors-and-retry.md")]
pub mod errors_and_retry {}

#[doc = include_str!("../guide/sagas.md")]
pub mod sagas {}

#[doc = include_str!("../guide/transactional-steps.md")]
pub mod transactional_steps {}

#[doc = include_str!("../guide/versions.md")]
pub mod versions {}

#[doc = include_str!("../guide/running-a-host.md")]
pub mod running_a_host {}

#[doc = include_str!("../guide/observing.md")]
pub mod observing {}

#[doc = include_str!("../guide/testing.md")]
pub mod testing {}

#[doc = include_str!("../guide/locks-alone.md")]
pub mod locks_alone {}

#[doc = include_str!("../guide/coming-from-workflow-core.md")]
pub mod coming_from_workflow_core {}
