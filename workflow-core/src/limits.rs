//! The sizes that untrusted input is held to.

/// Longest name or key, in bytes of UTF-8.
pub const NAME_BYTES: usize = 200;
/// Longest name of a user's lock, in bytes of UTF-8. Backends that allow less hash the tail.
pub const LOCK_NAME_BYTES: usize = 4 * 1024;
/// Longest namespace, in bytes.
pub const NAMESPACE_BYTES: usize = 32;
/// Default limit of an instance's data, in bytes of JSON.
pub const DATA_BYTES: usize = 1024 * 1024;
/// Highest limit of an instance's data that can be configured, in bytes of JSON.
pub const DATA_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Default limit of an event's data, in bytes of JSON.
pub const EVENT_BYTES: usize = 256 * 1024;
/// Highest limit of an event's data that can be configured, in bytes of JSON.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// Limit of the state that a step keeps between runs, in bytes of JSON.
pub const STEP_STATE_BYTES: usize = 256 * 1024;
/// Error texts are cut to this many bytes.
pub const ERROR_TEXT_BYTES: usize = 8 * 1024;
/// Errors kept per instance; the oldest go first.
pub const ERRORS_PER_INSTANCE: usize = 100;
/// Deepest nesting of JSON that is read.
pub const JSON_DEPTH: usize = 64;
/// Declared attributes per instance.
pub const ATTRIBUTES: usize = 32;
/// Text of a declared attribute, in bytes of UTF-8: every store can index it.
pub const ATTRIBUTE_TEXT_BYTES: usize = 400;
/// Result kept in the tombstone of a deleted instance, in bytes of JSON.
pub const TOMBSTONE_RESULT_BYTES: usize = 8 * 1024;
/// Checkpoints written in one group.
pub const GROUP_CHECKPOINTS: usize = 256;
/// Size of one group, in bytes.
pub const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// Rows one statement may write.
pub const STATEMENT_ROWS: usize = 2_000;

/// Cuts a text to at most `bytes` bytes, at a character boundary.
#[must_use]
pub fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// Whether JSON text nests no deeper than [`JSON_DEPTH`]. Strings and escapes are honoured; the text need not be valid.
#[must_use]
pub fn json_depth_is_allowed(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > JSON_DEPTH {
                    return false;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("zażółć", 3), "za");
        assert_eq!(cut("abc", 10), "abc");
    }

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        assert!(json_depth_is_allowed(&format!("\"{}\\\"[\"", "[".repeat(100))));
        assert!(json_depth_is_allowed(&format!("{}{}", "[".repeat(64), "]".repeat(64))));
        assert!(!json_depth_is_allowed(&"[".repeat(65)));
    }
}
