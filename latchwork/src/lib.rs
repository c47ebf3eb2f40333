#![doc = include_str!("../README.md")]

// Pages for readers: nothing of it is compiled into a program. Its examples need the embedded backends.
#[cfg(all(
    doc,
    any(not(doctest), all(feature = "sqlite", feature = "lock-local", feature = "queue-local", feature = "persistence-memory"))
))]
pub mod guide;

pub use latchwork_core as core;
pub use latchwork_core::{clock, hub, limits, lock, name, options, queue, retention, store};
pub use latchwork_engine as engine;
pub use latchwork_engine::*;

/// In-process locks. Feature `lock-local`.
#[cfg(feature = "lock-local")]
pub use latchwork_lock_local as lock_local;

/// Locks between the processes of one machine. Feature `lock-file`.
#[cfg(feature = "lock-file")]
pub use latchwork_lock_file as lock_file;

/// Application locks in SQL Server. Feature `lock-sqlserver`.
#[cfg(feature = "lock-sqlserver")]
pub use latchwork_lock_sqlserver as lock_sqlserver;

/// An in-process queue. Feature `queue-local`.
#[cfg(feature = "queue-local")]
pub use latchwork_queue_local as queue_local;

/// A table queue on SQLite. Feature `queue-sqlite`.
#[cfg(feature = "queue-sqlite")]
pub use latchwork_queue_sqlite as queue_sqlite;

/// A table queue on SQL Server. Feature `queue-sqlserver`.
#[cfg(feature = "queue-sqlserver")]
pub use latchwork_queue_sqlserver as queue_sqlserver;

/// A store in memory. Feature `persistence-memory`.
#[cfg(feature = "persistence-memory")]
pub use latchwork_persistence_memory as persistence_memory;

/// A store on SQLite. Feature `persistence-sqlite`.
#[cfg(feature = "persistence-sqlite")]
pub use latchwork_persistence_sqlite as persistence_sqlite;

/// A store on SQL Server. Feature `persistence-sqlserver`.
#[cfg(feature = "persistence-sqlserver")]
pub use latchwork_persistence_sqlserver as persistence_sqlserver;

/// What a workflow's source file needs: `use latchwork::prelude::*;`.
pub mod prelude {
    pub use latchwork_core::{
        lock::{DistributedLockProvider, LockGuard, LockProviderExt},
        name::Namespace,
        options::Configure,
        retention::{Keep, Retention},
        store::{InstanceId, WorkflowStatus},
    };
    pub use latchwork_engine::{
        Durability, ExecutionResult, HostError, Retry, StepBody, StepContext, StepError, StepResult, Workflow, WorkflowBuilder,
        WorkflowHandle, WorkflowHost,
    };
    pub use serde::{Deserialize, Serialize};

    #[cfg(feature = "lock-file")]
    pub use latchwork_lock_file::UseFileLocking;
    #[cfg(feature = "lock-local")]
    pub use latchwork_lock_local::UseLocalLocking;
    #[cfg(feature = "lock-sqlserver")]
    pub use latchwork_lock_sqlserver::UseSqlServerLocking;
    #[cfg(feature = "persistence-memory")]
    pub use latchwork_persistence_memory::UseMemoryPersistence;
    #[cfg(feature = "persistence-sqlite")]
    pub use latchwork_persistence_sqlite::{UseSqliteLeaseLocking, UseSqlitePersistence};
    #[cfg(feature = "persistence-sqlserver")]
    pub use latchwork_persistence_sqlserver::{UseSqlServerLeaseLocking, UseSqlServerPersistence};
    #[cfg(feature = "queue-local")]
    pub use latchwork_queue_local::UseLocalQueue;
    #[cfg(feature = "queue-sqlite")]
    pub use latchwork_queue_sqlite::UseSqliteQueue;
    #[cfg(feature = "queue-sqlserver")]
    pub use latchwork_queue_sqlserver::UseSqlServerQueue;
}
