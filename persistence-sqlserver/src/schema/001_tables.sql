-- Which channels of events are locked: each writer of a channel updates its row first.
CREATE TABLE [latchwork].[stripe] (
    [number] smallint NOT NULL PRIMARY KEY,
    [turn] bigint NOT NULL
);
GO
INSERT INTO [latchwork].[stripe] ([number], [turn])
SELECT a.[digit] * 16 + b.[digit], 0
FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)) AS a ([digit])
CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)) AS b ([digit]);
GO
-- One row per instance. Written by create, then by its owner's checkpoints only.
CREATE TABLE [latchwork].[instance] (
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [revision] bigint NOT NULL,
    [writer] varchar(60) COLLATE Latin1_General_100_BIN2 NULL,
    [status] varchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [due] bigint NULL,
    [fault_count] bigint NOT NULL,
    [last_sequence] bigint NOT NULL,
    [reason] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    [ended] bigint NULL,
    [definition] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [version] bigint NOT NULL,
    [fingerprint] varchar(100) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [business_key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NULL,
    [reference] nvarchar(200) COLLATE Latin1_General_100_BIN2 NULL,
    [parent] char(36) COLLATE Latin1_General_100_BIN2 NULL,
    [parent_pointer] char(32) COLLATE Latin1_General_100_BIN2 NULL,
    [created] bigint NOT NULL,
    CONSTRAINT [latchwork_instance_id] PRIMARY KEY CLUSTERED ([id]),
    CONSTRAINT [latchwork_instance_is_in_a_status] CHECK ([status] IN ('runnable', 'suspended', 'complete', 'terminated'))
);
GO
-- What is due, and whether an open instance has a shape. Holds all that a poll reads.
CREATE INDEX [latchwork_instance_due] ON [latchwork].[instance] ([status], [due], [id]) INCLUDE ([definition], [version]);
GO
-- Lists by definition.
CREATE INDEX [latchwork_instance_definition] ON [latchwork].[instance] ([definition], [id]);
GO
CREATE INDEX [latchwork_instance_reference] ON [latchwork].[instance] ([reference], [id]) WHERE [reference] IS NOT NULL;
GO
CREATE INDEX [latchwork_instance_parent] ON [latchwork].[instance] ([parent], [id]) WHERE [parent] IS NOT NULL;
GO
-- Those that are stuck.
CREATE INDEX [latchwork_instance_faults] ON [latchwork].[instance] ([id]) INCLUDE ([fault_count]) WHERE [fault_count] > 0;
GO
-- What can be purged.
CREATE INDEX [latchwork_instance_ended] ON [latchwork].[instance] ([status], [ended], [id]) WHERE [ended] IS NOT NULL;
GO
-- Who has, or had, a business key: instances and tombstones alike.
CREATE TABLE [latchwork].[business_key] (
    [definition] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [business_key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT [latchwork_business_key_is_unique] PRIMARY KEY CLUSTERED ([definition], [business_key])
);
GO
-- The data of an instance, written only when it changed.
CREATE TABLE [latchwork].[data] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [data] nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT [latchwork_data_instance] PRIMARY KEY CLUSTERED ([instance])
);
GO
-- Execution pointers. What the store itself looks at has columns; the rest of a pointer is JSON.
CREATE TABLE [latchwork].[pointer] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [sequence] bigint NOT NULL,
    [open] bit NOT NULL,
    [scope] char(32) COLLATE Latin1_General_100_BIN2 NULL,
    [record] nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [state] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    CONSTRAINT [latchwork_pointer_sequence] PRIMARY KEY CLUSTERED ([instance], [sequence])
);
GO
-- The open part of an instance, however many pointers are finished.
CREATE INDEX [latchwork_pointer_open] ON [latchwork].[pointer] ([instance], [sequence]) WHERE [open] = 1;
GO
CREATE INDEX [latchwork_pointer_scope] ON [latchwork].[pointer] ([instance], [scope], [sequence]) WHERE [scope] IS NOT NULL;
GO
-- Open waits for events.
CREATE TABLE [latchwork].[subscription] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [pointer] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [stripe] smallint NOT NULL,
    [slot] nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [as_of] bigint NOT NULL,
    [sequence] bigint NOT NULL,
    CONSTRAINT [latchwork_subscription_id] PRIMARY KEY CLUSTERED ([instance], [id])
);
GO
CREATE INDEX [latchwork_subscription_channel] ON [latchwork].[subscription] ([name], [key], [as_of]);
GO
-- Which events have satisfied which wait slots.
CREATE TABLE [latchwork].[consumed] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [slot] nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [event] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT [latchwork_consumed_event] PRIMARY KEY CLUSTERED ([instance], [slot], [event])
);
GO
-- Published events, in order of (time, number) within a channel.
CREATE TABLE [latchwork].[event] (
    [number] bigint IDENTITY(1, 1) NOT NULL,
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [stripe] smallint NOT NULL,
    [time] bigint NOT NULL,
    [data] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    CONSTRAINT [latchwork_event_number] PRIMARY KEY CLUSTERED ([number])
);
GO
CREATE UNIQUE INDEX [latchwork_event_id] ON [latchwork].[event] ([id]);
GO
CREATE INDEX [latchwork_event_channel] ON [latchwork].[event] ([name], [key], [time], [number]) INCLUDE ([id]);
GO
CREATE INDEX [latchwork_event_time] ON [latchwork].[event] ([time]) INCLUDE ([stripe]);
GO
-- Messages for the owners of instances: a control message, or an event that was matched to a wait. An id is never used again.
CREATE TABLE [latchwork].[inbox] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] bigint IDENTITY(1, 1) NOT NULL,
    [visible] bigint NOT NULL,
    [control] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    [subscription] char(32) COLLATE Latin1_General_100_BIN2 NULL,
    [slot] nvarchar(400) COLLATE Latin1_General_100_BIN2 NULL,
    [event] bigint NULL,
    CONSTRAINT [latchwork_inbox_id] PRIMARY KEY CLUSTERED ([instance], [id])
);
GO
-- A wait has one event at most.
CREATE UNIQUE INDEX [latchwork_inbox_wait] ON [latchwork].[inbox] ([instance], [subscription]) WHERE [subscription] IS NOT NULL;
GO
CREATE INDEX [latchwork_inbox_visible] ON [latchwork].[inbox] ([visible]) INCLUDE ([instance], [subscription]);
GO
CREATE INDEX [latchwork_inbox_event] ON [latchwork].[inbox] ([event], [instance], [slot]) INCLUDE ([visible]) WHERE [event] IS NOT NULL;
GO
-- Open activities. `free_at` is when one can be handed out: 0 at once, the end of the claim, or never (the largest number) once a
-- result was submitted.
CREATE TABLE [latchwork].[activity] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [number] bigint IDENTITY(1, 1) NOT NULL,
    [pointer] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [parameters] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    [free_at] bigint NOT NULL,
    [token] char(36) COLLATE Latin1_General_100_BIN2 NULL,
    [worker] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    CONSTRAINT [latchwork_activity_id] PRIMARY KEY CLUSTERED ([instance], [id])
);
GO
CREATE INDEX [latchwork_activity_free] ON [latchwork].[activity] ([name], [free_at], [number]) INCLUDE ([instance], [id]);
GO
CREATE UNIQUE INDEX [latchwork_activity_token] ON [latchwork].[activity] ([token]) WHERE [token] IS NOT NULL;
GO
-- Declared attributes, which lists can be filtered by. One of the three values is set.
CREATE TABLE [latchwork].[attribute] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [text] nvarchar(400) COLLATE Latin1_General_100_BIN2 NULL,
    [number] float NULL,
    [time] bigint NULL,
    CONSTRAINT [latchwork_attribute_name] PRIMARY KEY CLUSTERED ([instance], [name])
);
GO
CREATE INDEX [latchwork_attribute_text] ON [latchwork].[attribute] ([name], [text], [instance]) WHERE [text] IS NOT NULL;
GO
CREATE INDEX [latchwork_attribute_number] ON [latchwork].[attribute] ([name], [number], [instance]) WHERE [number] IS NOT NULL;
GO
CREATE INDEX [latchwork_attribute_time] ON [latchwork].[attribute] ([name], [time], [instance]) WHERE [time] IS NOT NULL;
GO
-- Errors of steps, the newest of each instance.
CREATE TABLE [latchwork].[error] (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] bigint IDENTITY(1, 1) NOT NULL,
    [pointer] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [step] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [attempt] bigint NOT NULL,
    [time] bigint NOT NULL,
    [message] nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT [latchwork_error_id] PRIMARY KEY CLUSTERED ([instance], [id])
);
GO
-- What is left of deleted instances.
CREATE TABLE [latchwork].[tombstone] (
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [definition] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [business_key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NULL,
    [status] varchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [ended] bigint NOT NULL,
    [result] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    [deleted] bigint NOT NULL,
    CONSTRAINT [latchwork_tombstone_id] PRIMARY KEY CLUSTERED ([id])
);
GO
CREATE INDEX [latchwork_tombstone_deleted] ON [latchwork].[tombstone] ([deleted]);
GO
-- The shapes of definitions.
CREATE TABLE [latchwork].[definition] (
    [id] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [version] bigint NOT NULL,
    [fingerprint] varchar(100) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [shape] nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT [latchwork_definition_version] PRIMARY KEY CLUSTERED ([id], [version])
);
GO
-- Which cluster the store belongs to: one row.
CREATE TABLE [latchwork].[identity] (
    [one] int NOT NULL PRIMARY KEY CHECK ([one] = 1),
    [cluster] varchar(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [namespace] varchar(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [lock_domain] nvarchar(1000) COLLATE Latin1_General_100_BIN2 NOT NULL
);
GO
-- Instances for people and their reports: times are dates, UTC. Nobody needs a right on the tables to read it.
CREATE VIEW [latchwork].[instances_report] AS
SELECT
    i.[id],
    i.[definition],
    i.[version],
    i.[status],
    i.[reason],
    i.[business_key],
    i.[reference],
    i.[parent],
    i.[fault_count],
    i.[revision],
    DATEADD(SECOND, i.[created] % 86400000000 / 1000000, DATEADD(DAY, i.[created] / 86400000000, CAST('1970-01-01' AS datetime2(0)))) AS [created_utc],
    -- A time beyond what the server can show is never.
    CASE
        WHEN i.[due] BETWEEN 0 AND 253402300799999999
            THEN DATEADD(SECOND, i.[due] % 86400000000 / 1000000, DATEADD(DAY, i.[due] / 86400000000, CAST('1970-01-01' AS datetime2(0))))
    END AS [due_utc],
    DATEADD(SECOND, i.[ended] % 86400000000 / 1000000, DATEADD(DAY, i.[ended] / 86400000000, CAST('1970-01-01' AS datetime2(0)))) AS [ended_utc]
FROM [latchwork].[instance] AS i;
