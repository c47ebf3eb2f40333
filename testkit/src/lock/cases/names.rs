//! Names and keys.

use super::*;
use latchwork_core::limits::LOCK_NAME_BYTES;

pub(in crate::lock) async fn bad_names_are_refused(fixture: &Fixture) -> Checked {
    let too_long = "x".repeat(LOCK_NAME_BYTES + 1);
    for name in ["", " ", "\u{a0}", " head", "tail ", "tail\t", "a\nb", "a\0b", "\u{7f}", "!internal", "!", &too_long] {
        let refused = [
            fixture.one.try_lock(name).await,
            fixture.one.lock(name, Duration::from_millis(10)).await,
            fixture.one.lock_all([name, "fine"], Duration::from_millis(10)).await.map(|_| None),
        ];
        for result in refused {
            match result {
                Err(LockError::InvalidKey(_)) => {}
                Err(error) => return Err(Failed(format!("the name {:?} must be an invalid key, and is: {error}", shown(name)))),
                Ok(_) => return Err(Failed(format!("the name {:?} was accepted", shown(name)))),
            }
        }
    }
    Ok(Verdict::Passed)
}

/// Names that a careless backend takes for one: cut, folded, trimmed, normalised, escaped.
fn look_alikes() -> Vec<String> {
    let prefix = fresh("n");
    let mut names: Vec<String> = [
        "",
        "a",
        "A",
        "á",
        "a\u{301}",
        "Á",
        "ß",
        "ss",
        "ſ",
        "s",
        "ı",
        "i",
        "I",
        "İ",
        "a.",
        "a..",
        "a/",
        "a/b",
        "a\\b",
        "a:b",
        "a_b",
        "a-b",
        "a b",
        "a  b",
        "a%b",
        "a%20b",
        "a'b",
        "a''b",
        "a\"b",
        "a~b",
        "a*b",
        "a?b",
        "a;b",
        "a{b}",
        "a[b]",
        "a$b",
        "a\u{200b}b",
        "ab",
        "aB",
        "½",
        "1⁄2",
        "①",
        "1",
        "01",
        "1.0",
        "１",
        "🔒",
        "🔒\u{fe0f}",
        "a.lock",
        "null",
        "NULL",
        "con",
        "a/../b",
        "../b",
    ]
    .iter()
    .map(|tail| format!("{prefix}{tail}"))
    .collect();
    // Just beside the limits that backends have, with equal heads and different tails, or the other way round.
    for length in
        [63, 64, 65, 127, 128, 191, 192, 199, 200, 201, 250, 254, 255, 256, 257, 511, 512, 767, 768, 1_023, 1_024, 4_095, 4_096]
    {
        let fill = |c: &str, length: usize| format!("{prefix}{}", c.repeat((length - prefix.len()) / c.len()));
        names.push(fill("x", length));
        names.push(format!("{}y", fill("x", length - 1)));
        names.push(format!("{}Y", fill("x", length - 1)));
        names.push(format!("{prefix}y{}", "x".repeat(length - prefix.len() - 1)));
    }
    for length in [200, 256, 1_024, 4_096] {
        names.push(format!("{prefix}{}", "ż".repeat((length - prefix.len()) / 2)));
        names.push(format!("{prefix}{}", "𝄞".repeat((length - prefix.len()) / 4)));
    }
    names.push(format!("x{prefix}"));
    names.sort();
    names.dedup();
    names
}

pub(in crate::lock) async fn look_alike_and_long_names_are_different_locks(fixture: &Fixture) -> Checked {
    let names = look_alikes();
    let mut guards = Vec::new();
    for name in &names {
        let granted = fixture.one.try_lock(name).await?;
        let Some(guard) = granted else {
            return Err(Failed(format!(
                "a name of {} bytes, {:?}..., is taken for another one that is held",
                name.len(),
                latchwork_core::limits::cut(name, 60)
            )));
        };
        guards.push(guard);
    }
    for name in &names {
        must_be_held(&fixture.other, name, "the other node holds it").await?;
    }
    // Each frees its own.
    for (guard, name) in guards.into_iter().zip(&names) {
        guard.release().await?;
        take(&fixture.other, name).await?.release().await?;
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn internal_keys_are_apart_from_names(fixture: &Fixture) -> Checked {
    let (locks, name) = (&fixture.one, fresh("poll"));
    let internal = LockKey::internal(locks.namespace(), &name)?;
    let guard = locks.acquire(LockRequest::new(internal.clone())).await?;
    ensure!(guard.is_some(), "a free internal key was not granted");
    let of_user = take(&fixture.other, &name).await?;
    let again = fixture.other.acquire(LockRequest::new(internal)).await?;
    ensure!(again.is_none(), "a held internal key was granted");
    drop((guard, of_user));
    Ok(Verdict::Passed)
}
