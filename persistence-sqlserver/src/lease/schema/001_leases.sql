-- One row per lease of a node. Its locks are the rows of `lease_lock` that name it while `owned_until` is in the future.
CREATE TABLE [latchwork].[lease_host] (
    [host] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [node] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [owned_until] datetime2(6) NOT NULL,
    CONSTRAINT [latchwork_lease_host_id] PRIMARY KEY CLUSTERED ([host])
);
GO
-- What has ended, for the clean-up.
CREATE INDEX [latchwork_lease_host_end] ON [latchwork].[lease_host] ([owned_until], [host]);
GO
-- The number of the last request of each host. Apart from its lease, so that renewals do not wait for requests.
CREATE TABLE [latchwork].[lease_request] (
    [host] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [number] bigint NOT NULL,
    CONSTRAINT [latchwork_lease_request_host] PRIMARY KEY CLUSTERED ([host])
);
GO
-- One row per held name; gone when it is released.
CREATE TABLE [latchwork].[lease_lock] (
    [name] nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [host] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [fence] bigint NOT NULL,
    CONSTRAINT [latchwork_lease_lock_name] PRIMARY KEY CLUSTERED ([name])
);
GO
-- What an ended lease has left.
CREATE INDEX [latchwork_lease_lock_host] ON [latchwork].[lease_lock] ([host]);
GO
-- Fencing tokens of all names. A number is drawn while its name is locked, so those of one name ascend, also after its row was gone.
CREATE SEQUENCE [latchwork].[lease_fence] AS bigint START WITH 1 INCREMENT BY 1;
