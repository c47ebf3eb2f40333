//! Many at once.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a lock protects. The counter is written as careless code would, so that two holders at once lose a count.
#[derive(Default)]
struct Protected {
    occupied: AtomicBool,
    count: AtomicU64,
}

impl Protected {
    async fn visit(&self) -> Result<(), Failed> {
        let alone = !self.occupied.swap(true, Ordering::SeqCst);
        ensure!(alone, "two tasks were inside one lock at the same time");
        let seen = self.count.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.count.store(seen + 1, Ordering::SeqCst);
        self.occupied.store(false, Ordering::SeqCst);
        Ok(())
    }
}

pub(in crate::lock) async fn a_thousand_tasks_on_twenty_names_exclude_each_other(fixture: &Fixture) -> Checked {
    const TASKS: usize = 1_000;
    const NAMES: usize = 20;
    let prefix = fresh("crowded");
    let places: Vec<_> = (0..NAMES).map(|number| (format!("{prefix}-{number}"), Arc::new(Protected::default()))).collect();
    let mut tasks = Vec::with_capacity(TASKS);
    for (task, (name, protected)) in places.iter().cycle().take(TASKS).enumerate() {
        let locks = if (task / NAMES).is_multiple_of(2) { fixture.one.clone() } else { fixture.other.clone() };
        let (name, protected) = (name.clone(), protected.clone());
        tasks.push(tokio::spawn(async move {
            let guard = locks.lock(&name, Duration::from_secs(90)).await?;
            let guard = guard.ok_or_else(|| Failed(format!("task {task} was not granted `{name}` within 90 s")))?;
            protected.visit().await?;
            ensure!(!guard.is_lost(), "a guard was lost in the crowd");
            if task % 3 == 0 {
                drop(guard);
            } else {
                guard.release().await?;
            }
            Ok::<_, Failed>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    for (name, protected) in places {
        let (count, expected) = (protected.count.load(Ordering::SeqCst), (TASKS / NAMES) as u64);
        ensure!(count == expected, "{expected} tasks counted inside `{name}`, and {count} counts are left");
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn k06_many_locks_are_held_at_once(fixture: &Fixture) -> Checked {
    let (locks, rival, many) = (&fixture.one, &fixture.other, fixture.many);
    let prefix: Arc<str> = fresh("many").into();
    let next = Arc::new(AtomicU64::new(0));
    let mut takers = Vec::new();
    for _ in 0..64 {
        let (locks, prefix, next) = (locks.clone(), prefix.clone(), next.clone());
        takers.push(tokio::spawn(async move {
            let mut guards = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= many as u64 {
                    return Ok::<_, Failed>(guards);
                }
                guards.push(take(&locks, &format!("{prefix}-{number}")).await?);
            }
        }));
    }
    let mut guards = Vec::with_capacity(many);
    for taker in takers {
        guards.extend(taker.await??);
    }
    let sample = (0..many).step_by((many / 50).max(1));
    for number in sample.clone() {
        must_be_held(rival, &format!("{prefix}-{number}"), "it is one of many that are held").await?;
    }
    ensure!(!guards.iter().any(LockGuard::is_lost), "one of {many} held locks was lost");
    let mut freed = Vec::new();
    for guard in guards {
        freed.push(tokio::spawn(guard.release()));
    }
    for release in freed {
        release.await??;
    }
    for number in sample {
        take(rival, &format!("{prefix}-{number}")).await?.release().await?;
    }
    Ok(Verdict::Passed)
}
