//! The conformance suite for stores: what [`PersistenceProvider`](latchwork_core::store::PersistenceProvider) promises, as
//! cases that any crate can run.
//!
//! Implement [`StoreFixture`] for your store, and let [`store_conformance!`](crate::store_conformance) make one test of each
//! case:
//!
//! ```
//! # use latchwork_core::{Scope, async_trait, clock::{Clock, SystemClock, Timestamp}, store::*};
//! # use std::{sync::Arc, time::Duration};
//! # #[derive(Debug)] pub struct MyStore(Arc<dyn Clock>);
//! # impl MyStore { async fn open(_: &str, clock: Arc<dyn Clock>) -> Result<Self, StoreError> { Ok(Self(clock)) } }
//! # fn no<T>() -> Result<T, StoreError> { Err(StoreError::new(StoreErrorKind::Unsupported, "my", "do it")) }
//! # #[async_trait] impl PersistenceProvider for MyStore {
//! #   fn capabilities(&self) -> StoreCapabilities { StoreCapabilities::new(Scope::Process, StoreClock::Injected, "my") }
//! #   async fn prepare(&self, _: SchemaMode) -> Result<(), StoreError> { no() }
//! #   async fn claim_identity(&self, _: &str, _: &str, _: bool) -> Result<IdentityOutcome, StoreError> { no() }
//! #   async fn claim_exclusive(&self, _: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError> { no() }
//! #   async fn define(&self, _: &DefinitionShape) -> Result<DefineOutcome, StoreError> { no() }
//! #   async fn create(&self, _: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> { no() }
//! #   async fn load(&self, _: &InstanceId) -> Result<Option<LoadedInstance>, StoreError> { no() }
//! #   async fn load_scope(&self, _: &InstanceId, _: PointerId) -> Result<Vec<PointerRecord>, StoreError> { no() }
//! #   async fn commit(&self, _: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome> { vec![] }
//! #   async fn fence(&self, _: &InstanceId) -> Result<Option<Fence>, StoreError> { no() }
//! #   async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError> { no() }
//! #   async fn publish(&self, _: &[NewEvent]) -> Result<PublishOutcome, StoreError> { no() }
//! #   async fn append(&self, _: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError> { no() }
//! #   async fn read_inbox(&self, _: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError> { no() }
//! #   async fn runnable(&self, _: &RunnableQuery) -> Result<RunnablePage, StoreError> { no() }
//! #   async fn claim_activity(&self, _: &[String], _: &str, _: Duration) -> Result<Option<ActivityClaim>, StoreError> { no() }
//! #   async fn release_activity(&self, _: &ActivityToken) -> Result<bool, StoreError> { no() }
//! #   async fn submit_activity(&self, _: &ActivityToken, _: ActivityOutcome) -> Result<SubmitOutcome, StoreError> { no() }
//! #   async fn get(&self, _: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> { no() }
//! #   async fn find_by_key(&self, _: &str, _: &str) -> Result<Option<InstanceId>, StoreError> { no() }
//! #   async fn find(&self, _: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError> { no() }
//! #   async fn history(&self, _: &InstanceId, _: i64, _: usize) -> Result<Page<PointerRecord>, StoreError> { no() }
//! #   async fn errors(&self, _: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError> { no() }
//! #   async fn statistics(&self) -> Result<StoreStatistics, StoreError> { no() }
//! #   async fn purge(&self, _: &PurgeRequest) -> Result<PurgeReport, StoreError> { no() }
//! #   async fn now(&self) -> Result<Timestamp, StoreError> { no() }
//! #   async fn stop(&self, _: Duration) -> Result<(), StoreError> { Ok(()) }
//! # }
//! // tests/conformance.rs of the crate with `MyStore`
//! use latchwork_testkit::{clock::VirtualClock, store::{BoxError, StoreFixture}};
//! # use latchwork_core::store::PersistenceProvider;
//!
//! struct OneFile { path: String, clock: VirtualClock }
//!
//! #[latchwork_testkit::store::async_trait]
//! impl StoreFixture for OneFile {
//!     async fn open(&self) -> Result<Arc<dyn PersistenceProvider>, BoxError> {
//!         Ok(Arc::new(MyStore::open(&self.path, Arc::new(self.clock.clone())).await?))
//!     }
//!     fn clock(&self) -> Option<VirtualClock> {
//!         Some(self.clock.clone())
//!     }
//! }
//!
//! latchwork_testkit::store_conformance!(async || Ok(OneFile { path: "a fresh one".into(), clock: VirtualClock::new() }));
//! ```
//!
//! The macro makes one `#[test]` per case. [`run_all`] runs them one after the other and reports, for a command-line tool or a
//! smoke test; [`run`] runs a single [`Case`]. Cases choose themselves by the store's
//! [capabilities](latchwork_core::store::StoreCapabilities) and by what the fixture can do.
//!
//! Each case opens two nodes on one store and lets one see what the other wrote. What a store may decide for itself is not
//! tested: the ids of inbox rows, how often a hint is given, the texts of errors.

mod case;
#[allow(clippy::cloned_ref_to_slice_refs, reason = "an expected list reads best as a list")]
mod cases;
mod fixture;
mod tools;

pub use case::{Case, CaseFailed, Report, block_on, run, run_all};
pub use fixture::{Skipped, StoreFixture};
pub use latchwork_core::{BoxError, async_trait};

/// Makes one `#[test]` per case of the suite for stores, in the place where it stands.
///
/// Takes an async function or closure without arguments that makes a fresh `Result<F, `[`BoxError`](latchwork_core::BoxError)`>`,
/// where `F` is a [`StoreFixture`](crate::store::StoreFixture), after any attributes for the tests:
///
/// ```ignore
/// latchwork_testkit::store_conformance!(one_file);
/// latchwork_testkit::store_conformance!(#[ignore = "needs the server of MY_SERVER"] one_database);
/// ```
#[macro_export]
macro_rules! store_conformance {
    (@with $then:ident $attributes:tt $factory:tt) => {
        $crate::store_conformance! { @$then $attributes $factory
            a_created_instance_reads_back_with_every_field
            a_repeated_create_changes_nothing
            a_create_answers_each_in_order
            an_unknown_instance_is_nothing
            a_business_key_is_unique_over_versions_and_states_of_its_definition
            a_hundred_starts_by_look_alike_keys_make_one_instance_each
            names_are_compared_byte_by_byte
            data_goes_round_as_it_is
            data_of_a_mebibyte_goes_round
            a_checkpoint_reads_back_with_every_field
            a_checkpoint_leaves_what_it_does_not_name
            waits_and_activities_end_by_their_ids
            every_status_goes_round
            a_due_time_is_kept_set_and_cleared
            a_refused_checkpoint_leaves_no_trace
            a_checkpoint_for_nobody_is_refused
            a_fence_tells_what_became_of_a_checkpoint
            a_checkpoint_is_written_once_however_often_it_is_tried
            a_batch_answers_each_member_in_order
            a_full_group_is_committed
            ten_thousand_pointers_are_written_as_deltas
            a_scope_loads_its_finished_pointers
            a_finished_pointer_can_open_again
            errors_are_kept_the_newest_hundred
            a_checkpoint_creates_children
            a_checkpoint_sends_messages
            a_checkpoint_publishes_events
            k52_of_fifty_racing_checkpoints_one_wins
            a_dropped_commit_has_happened_or_not
            every_message_goes_round_in_order
            append_tells_appended_ended_and_unknown_apart
            a_row_leaves_the_inbox_only_by_being_applied
            many_inboxes_are_read_at_once
            fifty_writers_append_beside_the_owner
            runnable_is_who_has_something_to_do
            a_timer_is_never_early
            runnable_tells_the_earliest_reason
            runnable_is_paged_over_equal_times
            runnable_leaves_unknown_definitions
            an_event_waits_for_its_wait
            a_wait_waits_for_its_event
            a_wait_sees_events_from_its_time_on_inclusively
            a_repeated_publish_changes_nothing
            events_come_in_the_order_of_time_then_number
            an_inbox_has_the_events_of_one_key_in_their_order
            a_future_event_becomes_visible_at_its_time
            a_future_event_gives_way_to_an_earlier_one
            an_event_satisfies_a_slot_once_and_slots_are_independent
            the_oldest_wait_of_a_slot_goes_first
            a_match_of_an_ended_wait_is_offered_to_the_next
            a_wait_that_ends_with_its_event_consumes_it
            an_event_waits_while_its_instance_is_suspended
            many_events_are_published_together
            one_event_reaches_a_thousand_waits
            events_and_waits_of_the_same_moment_all_meet
            an_event_at_the_moment_of_the_last_checkpoint_is_seen
            an_activity_goes_to_a_worker_and_back
            a_failure_goes_back_too
            of_twenty_workers_one_gets_an_activity
            a_claim_expires_by_the_stores_time
            a_released_activity_is_free_at_once
            activities_of_a_suspended_instance_are_not_handed_out
            workers_get_the_oldest_of_their_names
            an_ended_activity_takes_no_result
            a_terminal_checkpoint_ends_all_waiting
            a_shape_is_replaced_only_when_no_open_instance_has_it
            a_store_belongs_to_one_namespace_and_lock_domain
            the_exclusive_claim_is_granted_or_unsupported
            many_nodes_prepare_at_once
            a_schema_of_a_later_version_is_refused
            times_are_whole_microseconds_of_one_clock
            capabilities_are_constant_and_the_same_for_all_nodes
            k42_each_filter_selects_alone_and_with_others
            instances_whose_bursts_failed_are_found
            attributes_compare_within_their_type
            a_list_is_paged_by_a_cursor_that_stays_good
            a_text_is_found_in_references_and_text_attributes
            a_history_is_paged_by_sequence
            statistics_count_what_is_there
            a_purged_instance_leaves_a_tombstone
            a_tombstone_keeps_its_key_until_it_is_purged
            only_what_is_old_and_ended_is_purged
            k26_a_purge_is_bounded_and_tells_whether_there_is_more
            an_event_in_an_inbox_is_never_purged
            a_purge_racing_with_waits_and_publishers_takes_no_event_of_an_inbox
            a_purge_racing_with_checkpoints_takes_no_open_instance
            a_purge_racing_with_starts_gives_a_key_to_one
            a_transaction_commits_the_step_and_its_checkpoint_together
            a_transaction_of_a_refused_checkpoint_is_rolled_back
            a_transaction_that_is_dropped_or_rolled_back_leaves_nothing
            a_stopped_node_refuses_calls_and_others_go_on
            what_a_node_wrote_is_there_for_a_later_one
        }
    };
    (@list $cases:ident) => { $crate::store_conformance!(@with cases [] $cases) };
    (@cases [] $cases:ident $($case:ident)*) => {
        vec![$(Case { name: stringify!($case), run: |nodes| Box::pin($cases::$case(nodes)) }),*]
    };
    (@tests $attributes:tt $factory:tt $($case:ident)*) => {
        $($crate::store_conformance! { @test $attributes $factory $case })*
    };
    (@test [$($attribute:tt)*] [$factory:expr] $case:ident) => {
        $($attribute)*
        #[test]
        fn $case() -> ::std::result::Result<(), $crate::store::CaseFailed> {
            $crate::store::block_on(stringify!($case), $factory)
        }
    };
    ($(#[$attribute:meta])* $factory:expr) => {
        $crate::store_conformance! { @with tests [$(#[$attribute])*] [$factory] }
    };
}
