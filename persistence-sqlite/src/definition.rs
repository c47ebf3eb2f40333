//! The shapes of definitions, and the identity of the cluster.

use crate::sql::Sql;
use latchwork_core::store::{ClusterIdentity, DefineOutcome, DefinitionShape, IdentityOutcome};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};

/// By the primary key.
pub(crate) const SHAPE: &str = "SELECT fingerprint, shape FROM latchwork_definition WHERE id = ?1 AND version = ?2";

/// Whether an open instance has a shape. By `latchwork_instance_shape`.
pub(crate) const IS_USED: &str = "
    SELECT EXISTS (
        SELECT 1
        FROM latchwork_instance
        WHERE definition = ?1 AND version = ?2 AND fingerprint = ?3 AND status IN ('runnable', 'suspended')
    )";

pub(crate) const DEFINE: &str = "
    INSERT INTO latchwork_definition (id, version, fingerprint, shape)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (id, version) DO UPDATE SET fingerprint = excluded.fingerprint, shape = excluded.shape";

pub(crate) const IDENTIFY: &str = "
    INSERT INTO latchwork_identity (one, cluster, namespace, lock_domain) VALUES (1, ?1, ?2, ?3)
    ON CONFLICT (one) DO UPDATE SET namespace = excluded.namespace, lock_domain = excluded.lock_domain WHERE ?4";

pub(crate) const IDENTITY: &str = "SELECT cluster, namespace, lock_domain FROM latchwork_identity";

pub(crate) async fn define(
    connection: &mut SqliteConnection,
    sql: &Sql,
    shape: &DefinitionShape,
) -> Result<DefineOutcome, sqlx::Error> {
    let stored: Option<(String, String)> = sqlx::query_as(sql.get(SHAPE))
        .bind(shape.definition.as_ref())
        .bind(i64::from(shape.version))
        .fetch_optional(&mut *connection)
        .await?;
    if let Some((fingerprint, text)) = stored.filter(|(fingerprint, _)| *fingerprint != *shape.fingerprint) {
        let used: bool = sqlx::query_scalar(sql.get(IS_USED))
            .bind(shape.definition.as_ref())
            .bind(i64::from(shape.version))
            .bind(&fingerprint)
            .fetch_one(&mut *connection)
            .await?;
        if used {
            let stored = DefinitionShape { fingerprint: fingerprint.into(), shape: text.into(), ..shape.clone() };
            return Ok(DefineOutcome::Conflict { stored });
        }
    }
    sqlx::query(sql.get(DEFINE))
        .bind(shape.definition.as_ref())
        .bind(i64::from(shape.version))
        .bind(shape.fingerprint.as_ref())
        .bind(shape.shape.as_ref())
        .execute(connection)
        .await?;
    Ok(DefineOutcome::Stored)
}

/// `wanted` carries the cluster id that is entered when there is none yet.
pub(crate) async fn identify(
    connection: &mut SqliteConnection,
    sql: &Sql,
    wanted: &ClusterIdentity,
    replace: bool,
) -> Result<IdentityOutcome, sqlx::Error> {
    sqlx::query(sql.get(IDENTIFY))
        .bind(&wanted.cluster)
        .bind(&wanted.namespace)
        .bind(&wanted.lock_domain)
        .bind(replace)
        .execute(&mut *connection)
        .await?;
    let (cluster, namespace, lock_domain): (String, String, String) =
        sqlx::query_as(sql.get(IDENTITY)).fetch_one(connection).await?;
    let fits = namespace == wanted.namespace && lock_domain == wanted.lock_domain;
    let stored = ClusterIdentity { cluster, namespace, lock_domain };
    Ok(if fits { IdentityOutcome::Accepted(stored) } else { IdentityOutcome::Differs(stored) })
}
