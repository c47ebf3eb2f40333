//! SQL text with the namespace's table names.

use latchwork_core::name::Namespace;
use latchwork_sqlite_client::sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// How the tables of a namespace are called. Statements are written for the default one.
#[derive(Clone, Debug)]
pub(crate) struct Sql {
    /// In the place of `latchwork_`; `None` for the default namespace.
    prefix: Option<String>,
}

impl Sql {
    pub(crate) fn new(namespace: &Namespace) -> Self {
        // A `-` cannot stand in a name without quotes, a `$` can. No table of the default namespace has two underscores in a row, so
        // the names of two namespaces never meet.
        let prefix =
            (*namespace != Namespace::default()).then(|| format!("latchwork_{}__", namespace.as_str().replace('-', "$")));
        Self { prefix }
    }

    /// The statement for this namespace.
    pub(crate) fn get(&self, statement: &'static str) -> SqlStr {
        match &self.prefix {
            None => statement.into_sql_str(),
            Some(_) => self.made(statement),
        }
    }

    /// As [`get`](Self::get), for text that was put together from constants.
    pub(crate) fn made(&self, statement: &str) -> SqlStr {
        AssertSqlSafe(self.text(statement)).into_sql_str()
    }

    pub(crate) fn text(&self, statement: &str) -> String {
        match &self.prefix {
            None => statement.to_owned(),
            Some(prefix) => statement.replace("latchwork_", prefix),
        }
    }
}
