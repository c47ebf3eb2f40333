//! Handing activities to workers. Written by a compare-and-set of its own, beside the checkpoints.

use crate::{
    error::Failure,
    record::work_item,
    sql::{Columns, Request, batch},
};
use latchwork_core::store::{ActivityClaim, ActivityOutcome, ActivityToken, Control, SubmitOutcome, SubscriptionId};
use std::time::Duration;

/// The oldest that is free; a token that was given already is told again.
pub(crate) const CLAIM: &str = batch!("begin" "claim_activity");

/// By `latchwork_activity_token`.
pub(crate) const RELEASE: &str = "
DECLARE @token char(36) = @P1, @done int;
UPDATE [latchwork].[activity] SET [token] = NULL, [worker] = NULL, [free_at] = 0 WHERE [token] = @token;
SET @done = @@ROWCOUNT;
SELECT @done AS [done];";

/// A worker's result.
pub(crate) const SUBMIT: &str = batch!("begin" "submit_activity");

pub(crate) fn claim(names: &[String], worker: &str, lease: Duration, token: &ActivityToken) -> Result<Request, Failure> {
    let names: Vec<(&str,)> = names.iter().map(|name| (name.as_str(),)).collect();
    let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
    let request = Request::new(CLAIM).with(serde_json::to_string(&names)?);
    Ok(request.with(token.as_str()).with(worker).with(lease))
}

pub(crate) fn claimed(token: &ActivityToken, rows: Vec<Columns>) -> Result<Option<ActivityClaim>, Failure> {
    let Some(mut columns) = rows.into_iter().next() else { return Ok(None) };
    columns.int()?;
    Ok(Some(ActivityClaim {
        token: token.clone(),
        instance: columns.instance()?,
        activity: columns.parsed("activity id")?,
        name: columns.shared_text()?,
        parameters: columns.encoded()?,
        expires: columns.time()?,
    }))
}

/// The message says which activity it is about, which only the server knows: its text is sent in two pieces.
pub(crate) fn submit(token: &ActivityToken, outcome: ActivityOutcome) -> Result<Request, Failure> {
    let nobody = SubscriptionId::from_u128(0);
    let json = serde_json::to_string(&Control::ActivityResult { activity: nobody, outcome })?;
    // The id comes before the result, in which it might stand too.
    let (head, tail) = json.split_once(&nobody.to_string()).unwrap_or((&json, ""));
    Ok(Request::new(SUBMIT).with(token.as_str()).with(head).with(tail))
}

pub(crate) fn submitted(rows: Vec<Columns>) -> Result<SubmitOutcome, Failure> {
    let Some(mut columns) = rows.into_iter().next() else { return Ok(SubmitOutcome::Refused) };
    columns.int()?;
    Ok(SubmitOutcome::Accepted(work_item(&mut columns)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Value;

    #[test]
    fn a_result_is_split_where_the_activity_is_named() {
        let result = serde_json::json!({ "a": "0".repeat(32) });
        let request = submit(&ActivityToken::new(), ActivityOutcome::Success(result.clone())).expect("a request");
        let [_, Value::Text(head), Value::Text(tail)] = &request.values[..] else { panic!("{request:?}") };
        let id = SubscriptionId::from_u128(7);
        let control: Control = serde_json::from_str(&format!("{head}{id}{tail}")).expect("JSON");
        assert_eq!(control, Control::ActivityResult { activity: id, outcome: ActivityOutcome::Success(result) });
    }
}
