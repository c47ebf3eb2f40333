use std::{fmt, sync::Arc};

/// An ADO.NET connection string, for example `Server=tcp:db1,1433;Database=orders;User Id=app;Password='...'`.
///
/// It may hold a password: it shows in no `Debug`, no error and no log.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionString(Arc<str>);

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionString(..)")
    }
}

impl<T: Into<Arc<str>>> From<T> for ConnectionString {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl ConnectionString {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The value of the last of these keys that is there.
    pub(crate) fn value(&self, keys: &[&str]) -> Option<String> {
        let mut found = None;
        let mut rest = self.0.as_ref();
        while let Some((key, after)) = rest.split_once('=') {
            let after = after.trim_start();
            let value = match after.chars().next() {
                Some(quote @ ('\'' | '"')) => {
                    let mut value = String::new();
                    let mut letters = after.char_indices().skip(1).peekable();
                    let mut end = after.len();
                    while let Some((at, letter)) = letters.next() {
                        if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
                            end = at + 1;
                            break;
                        }
                        value.push(letter);
                    }
                    let behind = after.get(end..).unwrap_or_default();
                    rest = behind.split_once(';').map_or("", |(_, behind)| behind);
                    value
                }
                _ => {
                    let (value, behind) = after.split_once(';').unwrap_or((after, ""));
                    rest = behind;
                    value.trim().to_owned()
                }
            };
            let key = key.trim_matches(|letter: char| letter == ';' || letter.is_whitespace());
            if keys.iter().any(|wanted| wanted.eq_ignore_ascii_case(key)) {
                found = Some(value);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_does_not_show() {
        let text = ConnectionString::from("Server=a;Password=secret");
        assert!(!format!("{text:?}").contains("secret"));
    }

    #[test]
    fn values_are_found_beside_quoted_ones() {
        let text =
            ConnectionString::from("Server = tcp:a,1 ; Password='x;Encrypt=false''y' ; Encrypt=True;Initial Catalog=\"b;c\"");
        assert_eq!(text.value(&["encrypt"]).as_deref(), Some("True"));
        assert_eq!(text.value(&["data source", "server"]).as_deref(), Some("tcp:a,1"));
        assert_eq!(text.value(&["database", "initial catalog"]).as_deref(), Some("b;c"));
        assert_eq!(text.value(&["password"]).as_deref(), Some("x;Encrypt=false'y"));
        assert_eq!(text.value(&["missing"]), None);
    }
}
