//! The store suite itself: it passes what is right, and each planted fault fails the cases that are about it.

#![cfg(feature = "store")]

use latchwork_core::{
    BoxError, async_trait,
    clock::{Timestamp, add},
    store::{
        ActivityClaim, ActivityOutcome, ActivityToken, AppendOutcome, Checkpoint, CheckpointOutcome, Committed, Control,
        CreateOutcome, DefineOutcome, DefinitionShape, Due, Encoded, ErrorRecord, EventId, ExclusiveClaim, Fence,
        IdentityOutcome, InboxRow, InstanceId, InstanceQuery, InstanceRecord, InstanceSummary, LoadedInstance, NewEvent,
        NewInstance, Page, PersistenceProvider, PointerId, PointerRecord, PublishOutcome, PurgeReport, PurgeRequest,
        RunnablePage, RunnableQuery, SchemaMode, StepTransaction, StoreCapabilities, StoreError, StoreErrorKind, StoreStatistics,
        SubmitOutcome,
    },
};
use latchwork_persistence_memory::MemoryStore;
use latchwork_testkit::{
    clock::VirtualClock,
    store::{Case, StoreFixture, run, run_all},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    KeysAreFolded,
    KeysAreForgotten,
    ACreateIsNotRepeatable,
    DataIsParsed,
    LargeDataIsCut,
    TheRevisionIsIgnored,
    ARefusalSendsItsMessages,
    AConflictFailsItsNeighbours,
    TheWriterIsNotStored,
    TheWriterIsNotAsked,
    ACheckpointForNobodyIsWritten,
    FinishedPointersAreLoaded,
    HistoryIsCut,
    ErrorsComeNewestFirst,
    ADueTimeIsCutToSeconds,
    ChildrenAreNotWoken,
    TimersAreEarly,
    PagesLoseTies,
    OtherVersionsAreListed,
    SuspendedOnesAreNeverListed,
    EventsBeforeTheWaitAreLost,
    AsOfIsExclusive,
    ARepeatedPublishIsNew,
    EventTimesAreIgnored,
    AFutureEventIsVisible,
    SlotsAreOne,
    SlotsForget,
    TheNewestWaitGoesFirst,
    AnEndedWaitStays,
    APublishWakesNobody,
    AppliedTakesAll,
    AReadTakesTheRows,
    AppendSaysEndedForUnknown,
    AClaimIsGivenTwice,
    ClaimsLastForEver,
    ATokenSubmitsTwice,
    AReleaseDoesNothing,
    ShapesAreAlwaysReplaced,
    EveryIdentityFits,
    TimesHaveNanoseconds,
    TheCursorIsIgnored,
    ThereIsNeverMore,
    AttributesAreTextToAll,
    TextIsFolded,
    RowsAreNotCounted,
    APurgeIsUnbounded,
    APurgeIgnoresTheStatus,
    APurgeEndsWhatIsOpen,
    APurgeTakesTheEventsOfInboxes,
    AStartLooksAndThenWrites,
    StopIsForgotten,
}

/// A node whose calls go to a store that is right, bent by a fault.
#[derive(Debug)]
struct Bent {
    inner: MemoryStore,
    fault: Fault,
    shared: Arc<Shared>,
}

/// What the nodes of one bent store remember together.
#[derive(Debug, Default)]
struct Shared {
    claim: Mutex<Option<ActivityClaim>>,
    submitted: Mutex<HashMap<ActivityToken, SubmitOutcome>>,
    /// The holders of business keys that the store itself was not told.
    holders: Mutex<HashMap<String, InstanceId>>,
    has_purged: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bent {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn bend_instance(&self, new: &NewInstance) -> NewInstance {
        let mut new = new.clone();
        match self.fault {
            Fault::KeysAreFolded => new.business_key = new.business_key.map(|key| key.to_lowercase()),
            Fault::KeysAreForgotten => new.business_key = None,
            Fault::ACreateIsNotRepeatable => new.id = InstanceId::new(),
            Fault::LargeDataIsCut if new.data.as_str().len() > 65_535 => new.data = Encoded::from_json("\"\""),
            _ => {}
        }
        new
    }

    fn bend_event(&self, event: &NewEvent, now: Timestamp) -> NewEvent {
        let mut event = event.clone();
        match self.fault {
            Fault::ARepeatedPublishIsNew => event.id = EventId::new(),
            Fault::EventTimesAreIgnored => event.time = None,
            Fault::AFutureEventIsVisible => event.time = event.time.map(|time| time.min(now)),
            _ => {}
        }
        event
    }

    async fn bend_checkpoint(&self, checkpoint: &mut Checkpoint) -> Result<(), StoreError> {
        let now = self.inner.now().await?;
        for wait in &mut checkpoint.subscriptions {
            match self.fault {
                Fault::EventsBeforeTheWaitAreLost => wait.as_of = now,
                // What is gone, a wait that comes later does not find.
                Fault::APurgeTakesTheEventsOfInboxes if self.shared.has_purged.load(Ordering::Relaxed) => wait.as_of = now,
                Fault::AsOfIsExclusive => wait.as_of = add(wait.as_of, Duration::from_micros(1)),
                Fault::SlotsAreOne => wait.slot = "the slot".into(),
                Fault::TheNewestWaitGoesFirst => wait.sequence = -wait.sequence,
                _ => {}
            }
        }
        match self.fault {
            Fault::SlotsForget => checkpoint.consumed.clear(),
            Fault::AnEndedWaitStays if checkpoint.consumed.is_empty() => checkpoint.ended_subscriptions.clear(),
            Fault::ADueTimeIsCutToSeconds => {
                if let Due::In(span) = checkpoint.header.due {
                    checkpoint.header.due = Due::In(Duration::from_secs(span.as_secs()));
                }
            }
            Fault::TheWriterIsNotStored => checkpoint.id.burst = 0,
            Fault::TheWriterIsNotAsked => {
                let fence = self.inner.fence(&checkpoint.instance).await?;
                if let Some(fence) = fence.filter(|fence| fence.writer == Some(checkpoint.id)) {
                    checkpoint.id.burst += 1 << 64;
                    checkpoint.expected = fence.revision;
                }
            }
            Fault::TheRevisionIsIgnored => {
                if let Some(fence) = self.inner.fence(&checkpoint.instance).await? {
                    checkpoint.expected = fence.revision;
                }
            }
            Fault::AppliedTakesAll if !checkpoint.applied.is_empty() => {
                let rows = self.inner.read_inbox(std::slice::from_ref(&checkpoint.instance)).await?;
                checkpoint.applied = rows.into_iter().flat_map(|(_, rows)| rows).map(|row| row.id).collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// A start that looks whether its key is free, and takes it a moment later.
    async fn create_late(&self, new: &NewInstance) -> Result<CreateOutcome, StoreError> {
        let Some(key) = new.business_key.clone() else { return self.create_without_key(new).await };
        let holder = locked(&self.shared.holders).get(&key).cloned();
        if let Some(instance) = holder {
            let status = match self.inner.get(&instance).await? {
                Some(InstanceRecord::Instance { header, .. }) => Some(header.status),
                Some(InstanceRecord::Deleted(tombstone)) => Some(tombstone.status),
                None => None,
            };
            if let Some(status) = status {
                return Ok(CreateOutcome::Exists { instance, status });
            }
        }
        tokio::task::yield_now().await;
        locked(&self.shared.holders).insert(key, new.id.clone());
        self.create_without_key(new).await
    }

    async fn create_without_key(&self, new: &NewInstance) -> Result<CreateOutcome, StoreError> {
        let mut new = new.clone();
        new.business_key = None;
        let answer = self.inner.create(std::slice::from_ref(&new)).await?.pop();
        answer.ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "bent", "answer"))
    }

    /// Ends all that is open.
    async fn end_all(&self) -> Result<(), StoreError> {
        for found in self.inner.find(&InstanceQuery::new()).await?.items {
            let Some(fence) = self.inner.fence(&found.header.id).await? else { continue };
            let id = latchwork_core::store::CheckpointId { burst: 1, number: 1 };
            let status = latchwork_core::store::WorkflowStatus::Terminated;
            let header = latchwork_core::store::HeaderUpdate { status, reason: None, due: Due::Never, fault_count: 0 };
            self.inner.commit(vec![Arc::new(Checkpoint::new(found.header.id, id, fence.revision, header))]).await;
        }
        Ok(())
    }

    async fn commit_one(&self, checkpoint: Arc<Checkpoint>) -> CheckpointOutcome {
        let mut bent = (*checkpoint).clone();
        if let Err(error) = self.bend_checkpoint(&mut bent).await {
            return CheckpointOutcome::Failed(error);
        }
        let answer = self.inner.commit(vec![Arc::new(bent)]).await.pop();
        match answer {
            Some(CheckpointOutcome::Committed(mut committed)) => {
                if self.is(Fault::ChildrenAreNotWoken) {
                    committed.wake.clear();
                }
                CheckpointOutcome::Committed(committed)
            }
            Some(CheckpointOutcome::Refused { stored }) => {
                if self.is(Fault::ARefusalSendsItsMessages) {
                    let _ = self.inner.append(&checkpoint.messages).await;
                }
                match self.inner.now().await {
                    Ok(now) if stored.is_none() && self.is(Fault::ACheckpointForNobodyIsWritten) => {
                        let revision = checkpoint.expected.next();
                        CheckpointOutcome::Committed(Committed { revision, now, inbox: Vec::new(), wake: Vec::new() })
                    }
                    _ => CheckpointOutcome::Refused { stored },
                }
            }
            Some(failed) => failed,
            None => CheckpointOutcome::Failed(StoreError::new(StoreErrorKind::Corrupt, "bent", "answer")),
        }
    }
}

#[async_trait]
impl PersistenceProvider for Bent {
    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
    }

    async fn prepare(&self, mode: SchemaMode) -> Result<(), StoreError> {
        self.inner.prepare(mode).await
    }

    async fn claim_identity(&self, namespace: &str, lock_domain: &str, replace: bool) -> Result<IdentityOutcome, StoreError> {
        let answer = self.inner.claim_identity(namespace, lock_domain, replace).await?;
        Ok(match answer {
            IdentityOutcome::Differs(identity) if self.is(Fault::EveryIdentityFits) => IdentityOutcome::Accepted(identity),
            answer => answer,
        })
    }

    async fn claim_exclusive(&self, node: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError> {
        self.inner.claim_exclusive(node).await
    }

    async fn define(&self, shape: &DefinitionShape) -> Result<DefineOutcome, StoreError> {
        let answer = self.inner.define(shape).await?;
        Ok(if self.is(Fault::ShapesAreAlwaysReplaced) { DefineOutcome::Stored } else { answer })
    }

    async fn create(&self, instances: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> {
        if self.is(Fault::AStartLooksAndThenWrites) {
            let mut answers = Vec::new();
            for new in instances {
                answers.push(self.create_late(new).await?);
            }
            return Ok(answers);
        }
        let bent: Vec<_> = instances.iter().map(|new| self.bend_instance(new)).collect();
        self.inner.create(&bent).await
    }

    async fn load(&self, instance: &InstanceId) -> Result<Option<LoadedInstance>, StoreError> {
        let Some(mut found) = self.inner.load(instance).await? else { return Ok(None) };
        match self.fault {
            Fault::FinishedPointersAreLoaded => found.pointers = self.inner.history(instance, 0, usize::MAX).await?.items,
            Fault::DataIsParsed => {
                if let Ok(value) = serde_json::from_str::<serde_json::Value>(found.data.as_str()) {
                    found.data = Encoded::from_json(value.to_string());
                }
            }
            _ => {}
        }
        Ok(Some(found))
    }

    async fn load_scope(&self, instance: &InstanceId, scope: PointerId) -> Result<Vec<PointerRecord>, StoreError> {
        self.inner.load_scope(instance, scope).await
    }

    async fn commit(&self, batch: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome> {
        let mut answers = Vec::new();
        let mut broken = false;
        for checkpoint in batch {
            let answer = if broken {
                CheckpointOutcome::Failed(StoreError::new(StoreErrorKind::Unavailable, "bent", "commit a checkpoint"))
            } else {
                self.commit_one(checkpoint).await
            };
            broken |= self.is(Fault::AConflictFailsItsNeighbours) && !matches!(answer, CheckpointOutcome::Committed(_));
            answers.push(answer);
        }
        answers
    }

    async fn fence(&self, instance: &InstanceId) -> Result<Option<Fence>, StoreError> {
        self.inner.fence(instance).await
    }

    async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError> {
        self.inner.begin().await
    }

    async fn publish(&self, events: &[NewEvent]) -> Result<PublishOutcome, StoreError> {
        let now = self.inner.now().await?;
        let bent: Vec<_> = events.iter().map(|event| self.bend_event(event, now)).collect();
        let answer = self.inner.publish(&bent).await?;
        Ok(if self.is(Fault::APublishWakesNobody) { PublishOutcome::default() } else { answer })
    }

    async fn append(&self, messages: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError> {
        let answers = self.inner.append(messages).await?;
        let bend = |answer| match answer {
            AppendOutcome::Unknown if self.is(Fault::AppendSaysEndedForUnknown) => {
                AppendOutcome::Ended(latchwork_core::store::WorkflowStatus::Complete)
            }
            answer => answer,
        };
        Ok(answers.into_iter().map(bend).collect())
    }

    async fn read_inbox(&self, instances: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError> {
        let read = self.inner.read_inbox(instances).await?;
        if self.is(Fault::AReadTakesTheRows) {
            for (id, rows) in &read {
                let Some(found) = self.inner.load(id).await? else { continue };
                let number = latchwork_core::store::CheckpointId { burst: 1, number: 1 };
                let header = latchwork_core::store::HeaderUpdate {
                    status: found.header.status,
                    reason: None,
                    due: Due::Keep,
                    fault_count: 0,
                };
                let mut taking = Checkpoint::new(id.clone(), number, found.header.revision, header);
                taking.applied = rows.iter().map(|row| row.id).collect();
                let _ = self.inner.commit(vec![Arc::new(taking)]).await;
            }
        }
        Ok(read)
    }

    async fn runnable(&self, query: &RunnableQuery) -> Result<RunnablePage, StoreError> {
        let mut query = query.clone();
        match self.fault {
            Fault::TimersAreEarly => query.horizon += Duration::from_secs(3_600),
            Fault::PagesLoseTies => query.after = query.after.map(|(due, id)| (add(due, Duration::from_micros(1)), id)),
            Fault::OtherVersionsAreListed => {
                let versions = |(name, _): &(Arc<str>, u32)| (1..=3).map(|version| (name.clone(), version)).collect::<Vec<_>>();
                query.known = query.known.iter().flat_map(versions).collect();
            }
            _ => {}
        }
        let mut page = self.inner.runnable(&query).await?;
        if self.is(Fault::SuspendedOnesAreNeverListed) {
            let mut kept = Vec::new();
            for item in page.items {
                let status = self.inner.load(&item.item.instance).await?.map(|found| found.header.status);
                if status == Some(latchwork_core::store::WorkflowStatus::Runnable) {
                    kept.push(item);
                }
            }
            page.items = kept;
        }
        Ok(page)
    }

    async fn claim_activity(&self, names: &[String], worker: &str, lease: Duration) -> Result<Option<ActivityClaim>, StoreError> {
        let lease = if self.is(Fault::ClaimsLastForEver) { Duration::from_secs(1_000_000) } else { lease };
        let claim = self.inner.claim_activity(names, worker, lease).await?;
        let mut last = locked(&self.shared.claim);
        if claim.is_some() {
            last.clone_from(&claim);
        }
        Ok(if self.is(Fault::AClaimIsGivenTwice) { last.clone() } else { claim })
    }

    async fn release_activity(&self, token: &ActivityToken) -> Result<bool, StoreError> {
        if self.is(Fault::AReleaseDoesNothing) { Ok(true) } else { self.inner.release_activity(token).await }
    }

    async fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> Result<SubmitOutcome, StoreError> {
        let answer = self.inner.submit_activity(token, outcome).await?;
        let mut submitted = locked(&self.shared.submitted);
        match answer {
            SubmitOutcome::Refused if self.is(Fault::ATokenSubmitsTwice) => {
                Ok(submitted.get(token).cloned().unwrap_or(SubmitOutcome::Refused))
            }
            answer => {
                submitted.insert(token.clone(), answer.clone());
                Ok(answer)
            }
        }
    }

    async fn get(&self, instance: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> {
        self.inner.get(instance).await
    }

    async fn find_by_key(&self, definition: &str, business_key: &str) -> Result<Option<InstanceId>, StoreError> {
        if self.is(Fault::AStartLooksAndThenWrites) {
            let holder = locked(&self.shared.holders).get(business_key).cloned();
            let Some(holder) = holder else { return Ok(None) };
            return Ok(self.inner.get(&holder).await?.map(|_| holder));
        }
        self.inner.find_by_key(definition, business_key).await
    }

    async fn find(&self, query: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError> {
        let mut query = query.clone();
        match self.fault {
            Fault::TheCursorIsIgnored => query.after = None,
            Fault::AttributesAreTextToAll => query.attributes.clear(),
            Fault::TextIsFolded => query.text = query.text.map(|text| text.to_uppercase()),
            _ => {}
        }
        let mut page = self.inner.find(&query).await?;
        page.more &= !self.is(Fault::ThereIsNeverMore);
        Ok(page)
    }

    async fn history(&self, instance: &InstanceId, after: i64, limit: usize) -> Result<Page<PointerRecord>, StoreError> {
        let mut page = self.inner.history(instance, after, limit).await?;
        if self.is(Fault::HistoryIsCut) && page.items.len() > 5 {
            page.items.truncate(5);
        }
        Ok(page)
    }

    async fn errors(&self, instance: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError> {
        let mut errors = self.inner.errors(instance).await?;
        if self.is(Fault::ErrorsComeNewestFirst) {
            errors.reverse();
        }
        Ok(errors)
    }

    async fn statistics(&self) -> Result<StoreStatistics, StoreError> {
        let mut statistics = self.inner.statistics().await?;
        if self.is(Fault::RowsAreNotCounted) {
            statistics.inbox = 0;
        }
        Ok(statistics)
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeReport, StoreError> {
        let mut request = request.clone();
        match self.fault {
            Fault::APurgeIsUnbounded => request.limit = usize::MAX,
            Fault::APurgeIgnoresTheStatus => request.statuses.clear(),
            Fault::APurgeEndsWhatIsOpen => self.end_all().await?,
            _ => {}
        }
        self.shared.has_purged.store(true, Ordering::Relaxed);
        self.inner.purge(&request).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = self.inner.now().await?;
        Ok(if self.is(Fault::TimesHaveNanoseconds) { now + Duration::from_nanos(1) } else { now })
    }

    async fn stop(&self, grace: Duration) -> Result<(), StoreError> {
        if self.is(Fault::StopIsForgotten) { Ok(()) } else { self.inner.stop(grace).await }
    }
}

struct BentStore {
    store: MemoryStore,
    clock: VirtualClock,
    fault: Fault,
    shared: Arc<Shared>,
}

#[async_trait]
impl StoreFixture for BentStore {
    async fn open(&self) -> Result<Arc<dyn PersistenceProvider>, BoxError> {
        let (inner, fault, shared) = (self.store.clone(), self.fault, self.shared.clone());
        Ok(Arc::new(Bent { inner, fault, shared }))
    }

    fn clock(&self) -> Option<VirtualClock> {
        Some(self.clock.clone())
    }
}

async fn bent(fault: Fault) -> Result<BentStore, BoxError> {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    Ok(BentStore { store, clock, fault, shared: Arc::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_right_passes_every_case() {
    let report = run_all(|| bent(Fault::None)).await;
    assert_eq!(report.failed, [], "{report}");
    assert_eq!(report.passed.len() + report.skipped.len(), Case::all().len());
    let skipped: Vec<_> = report.skipped.iter().map(|(_, why)| *why).collect();
    assert_eq!(
        skipped,
        [
            "the fixture has no schema to mark as newer",
            "the store has no transactions for steps",
            "the store has no transactions for steps",
            "the store has no transactions for steps",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_planted_fault_fails_the_case_that_is_about_it() {
    let faults = [
        (Fault::KeysAreFolded, "a_hundred_starts_by_look_alike_keys_make_one_instance_each"),
        (Fault::KeysAreForgotten, "a_business_key_is_unique_over_versions_and_states_of_its_definition"),
        (Fault::ACreateIsNotRepeatable, "a_repeated_create_changes_nothing"),
        (Fault::DataIsParsed, "data_goes_round_as_it_is"),
        (Fault::LargeDataIsCut, "data_of_a_mebibyte_goes_round"),
        (Fault::TheRevisionIsIgnored, "a_refused_checkpoint_leaves_no_trace"),
        (Fault::TheRevisionIsIgnored, "k52_of_fifty_racing_checkpoints_one_wins"),
        (Fault::TheRevisionIsIgnored, "a_checkpoint_is_written_once_however_often_it_is_tried"),
        (Fault::TheWriterIsNotAsked, "a_checkpoint_is_written_once_however_often_it_is_tried"),
        (Fault::ACheckpointForNobodyIsWritten, "a_checkpoint_for_nobody_is_refused"),
        (Fault::ARefusalSendsItsMessages, "a_refused_checkpoint_leaves_no_trace"),
        (Fault::AConflictFailsItsNeighbours, "a_batch_answers_each_member_in_order"),
        (Fault::TheWriterIsNotStored, "a_fence_tells_what_became_of_a_checkpoint"),
        (Fault::TheWriterIsNotStored, "a_checkpoint_reads_back_with_every_field"),
        (Fault::FinishedPointersAreLoaded, "ten_thousand_pointers_are_written_as_deltas"),
        (Fault::HistoryIsCut, "a_history_is_paged_by_sequence"),
        (Fault::ErrorsComeNewestFirst, "errors_are_kept_the_newest_hundred"),
        (Fault::ADueTimeIsCutToSeconds, "a_due_time_is_kept_set_and_cleared"),
        (Fault::ChildrenAreNotWoken, "a_checkpoint_creates_children"),
        (Fault::ChildrenAreNotWoken, "a_checkpoint_publishes_events"),
        (Fault::TimersAreEarly, "a_timer_is_never_early"),
        (Fault::TimersAreEarly, "runnable_is_who_has_something_to_do"),
        (Fault::PagesLoseTies, "runnable_is_paged_over_equal_times"),
        (Fault::OtherVersionsAreListed, "runnable_leaves_unknown_definitions"),
        (Fault::SuspendedOnesAreNeverListed, "runnable_is_who_has_something_to_do"),
        (Fault::EventsBeforeTheWaitAreLost, "an_event_waits_for_its_wait"),
        (Fault::AsOfIsExclusive, "a_wait_sees_events_from_its_time_on_inclusively"),
        (Fault::ARepeatedPublishIsNew, "a_repeated_publish_changes_nothing"),
        (Fault::EventTimesAreIgnored, "events_come_in_the_order_of_time_then_number"),
        (Fault::EventTimesAreIgnored, "an_inbox_has_the_events_of_one_key_in_their_order"),
        (Fault::AFutureEventIsVisible, "a_future_event_becomes_visible_at_its_time"),
        (Fault::AFutureEventIsVisible, "a_future_event_gives_way_to_an_earlier_one"),
        (Fault::SlotsAreOne, "an_event_satisfies_a_slot_once_and_slots_are_independent"),
        (Fault::SlotsForget, "an_event_satisfies_a_slot_once_and_slots_are_independent"),
        (Fault::SlotsForget, "a_wait_that_ends_with_its_event_consumes_it"),
        (Fault::TheNewestWaitGoesFirst, "the_oldest_wait_of_a_slot_goes_first"),
        (Fault::AnEndedWaitStays, "a_match_of_an_ended_wait_is_offered_to_the_next"),
        (Fault::AnEndedWaitStays, "waits_and_activities_end_by_their_ids"),
        (Fault::APublishWakesNobody, "a_wait_waits_for_its_event"),
        (Fault::APublishWakesNobody, "one_event_reaches_a_thousand_waits"),
        (Fault::AppliedTakesAll, "a_row_leaves_the_inbox_only_by_being_applied"),
        (Fault::AReadTakesTheRows, "every_message_goes_round_in_order"),
        (Fault::AppendSaysEndedForUnknown, "append_tells_appended_ended_and_unknown_apart"),
        (Fault::AClaimIsGivenTwice, "of_twenty_workers_one_gets_an_activity"),
        (Fault::AClaimIsGivenTwice, "activities_of_a_suspended_instance_are_not_handed_out"),
        (Fault::ClaimsLastForEver, "a_claim_expires_by_the_stores_time"),
        (Fault::ATokenSubmitsTwice, "an_activity_goes_to_a_worker_and_back"),
        (Fault::AReleaseDoesNothing, "a_released_activity_is_free_at_once"),
        (Fault::ShapesAreAlwaysReplaced, "a_shape_is_replaced_only_when_no_open_instance_has_it"),
        (Fault::EveryIdentityFits, "a_store_belongs_to_one_namespace_and_lock_domain"),
        (Fault::TimesHaveNanoseconds, "times_are_whole_microseconds_of_one_clock"),
        (Fault::TheCursorIsIgnored, "a_list_is_paged_by_a_cursor_that_stays_good"),
        (Fault::ThereIsNeverMore, "a_list_is_paged_by_a_cursor_that_stays_good"),
        (Fault::AttributesAreTextToAll, "attributes_compare_within_their_type"),
        (Fault::TextIsFolded, "a_text_is_found_in_references_and_text_attributes"),
        (Fault::RowsAreNotCounted, "statistics_count_what_is_there"),
        (Fault::APurgeIsUnbounded, "k26_a_purge_is_bounded_and_tells_whether_there_is_more"),
        (Fault::APurgeIgnoresTheStatus, "only_what_is_old_and_ended_is_purged"),
        (Fault::APurgeTakesTheEventsOfInboxes, "an_event_in_an_inbox_is_never_purged"),
        (Fault::APurgeTakesTheEventsOfInboxes, "a_purge_racing_with_waits_and_publishers_takes_no_event_of_an_inbox"),
        (Fault::APurgeEndsWhatIsOpen, "a_purge_racing_with_checkpoints_takes_no_open_instance"),
        (Fault::ACheckpointForNobodyIsWritten, "a_purge_racing_with_checkpoints_takes_no_open_instance"),
        (Fault::AStartLooksAndThenWrites, "a_purge_racing_with_starts_gives_a_key_to_one"),
        (Fault::StopIsForgotten, "a_stopped_node_refuses_calls_and_others_go_on"),
    ];
    let mut unnoticed = Vec::new();
    for (fault, case) in faults {
        let case = Case::named(case).expect(case);
        match run(case, || bent(fault)).await {
            Ok(()) => unnoticed.push((fault, case.name())),
            Err(failed) => assert_eq!(failed.case, case.name()),
        }
    }
    assert_eq!(unnoticed, [], "faults that the cases about them do not see");
}
