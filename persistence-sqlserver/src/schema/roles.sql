-- What a host does, and no more: no right to change tables.
CREATE ROLE [latchwork_host];
GO
GRANT SELECT, INSERT, UPDATE, DELETE ON SCHEMA::[latchwork] TO [latchwork_host];
GO
-- Reads the report, and nothing else.
CREATE ROLE [latchwork_reader];
GO
GRANT SELECT ON [latchwork].[instances_report] TO [latchwork_reader];
GO
