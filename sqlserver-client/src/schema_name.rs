use std::{borrow::Cow, fmt, sync::Arc};

/// The schema that statements are written for.
const WRITTEN: &str = "[latchwork]";
/// What the server keeps of a name, in UTF-16 units.
const LONGEST: usize = 128;

/// The database schema that tables are in, checked and in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SchemaName {
    plain: Arc<str>,
    quoted: Arc<str>,
}

impl Default for SchemaName {
    fn default() -> Self {
        Self { plain: "latchwork".into(), quoted: WRITTEN.into() }
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain)
    }
}

impl SchemaName {
    /// A schema of this name: 1 to 128 letters, digits, `_` and `-`. `None` for any other.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        let valid = (1..=LONGEST).contains(&name.len()) && name.chars().all(plain);
        valid.then(|| Self { plain: name.into(), quoted: format!("[{name}]").into() })
    }

    /// The name, without brackets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.plain
    }

    /// A text that was written for the schema `[latchwork]`, for this one.
    #[must_use]
    pub fn apply<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        if *self.quoted == *WRITTEN { Cow::Borrowed(sql) } else { Cow::Owned(sql.replace(WRITTEN, &self.quoted)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_more_than_a_name_is_refused() {
        for name in ["", "a]", "a b", "a.b", "[a]", "a'", "ä", &"x".repeat(129)] {
            assert_eq!(SchemaName::new(name), None, "{name}");
        }
        let name = SchemaName::new("latchwork_a-1").expect("valid");
        assert_eq!(name.apply("SELECT 1 FROM [latchwork].[x]"), "SELECT 1 FROM [latchwork_a-1].[x]");
        assert_eq!(SchemaName::default().apply("FROM [latchwork].[x]"), "FROM [latchwork].[x]");
    }
}
