//! Whether statements are Transact-SQL at all, by the parser of the crate `sqlparser`.
//!
//! That parser knows most of the language. What it does not know, and a server does, is an exception with its reason; all around it
//! is checked:
//!
//! ```
//! use latchwork_testkit::sqlserver::grammar::{self, Exception};
//!
//! let statements = [
//!     ("load", "SELECT TOP (1) [Data] FROM [dbo].[Order] WITH (UPDLOCK) WHERE [Id] = @P1"),
//!     ("clean", "DELETE TOP (@P1) FROM [dbo].[Order] OUTPUT deleted.[Id]"),
//! ];
//! let exceptions = [Exception::new("DELETE TOP (@P1)", "DELETE", "the parser knows no TOP in a DELETE")];
//! grammar::check(statements, &exceptions).unwrap_or_else(|problem| panic!("{problem}"));
//! ```

use sqlparser::{
    dialect::MsSqlDialect,
    parser::{Parser, ParserError},
    tokenizer::Token,
};

/// A piece of Transact-SQL that the parser does not know.
#[derive(Clone, Copy, Debug)]
pub struct Exception<'a> {
    sql: &'a str,
    instead: &'a str,
    reason: &'a str,
}

impl<'a> Exception<'a> {
    /// `sql` as it stands in the statements, what the parser is shown in its place, and why.
    #[must_use]
    pub fn new(sql: &'a str, instead: &'a str, reason: &'a str) -> Self {
        Self { sql, instead, reason }
    }
}

/// Parses each statement or batch, by its name. An exception without which all of them pass is a problem too.
///
/// # Errors
/// A text with one line per problem: the name of the statement and what the parser said, or the exception.
pub fn check<'a>(
    statements: impl IntoIterator<Item = (&'a str, impl Into<String>)>,
    exceptions: &[Exception<'_>],
) -> Result<(), String> {
    let statements: Vec<(&str, String)> = statements.into_iter().map(|(name, sql)| (name, sql.into())).collect();
    let mut problems = Vec::new();
    for (name, sql) in &statements {
        match count(&replaced(sql, exceptions, None)) {
            Ok(0) => problems.push(format!("`{name}`: there is no statement in it")),
            Ok(_) => {}
            Err(error) => problems.push(format!("`{name}`: {error}")),
        }
    }
    for (number, Exception { sql, reason, .. }) in exceptions.iter().enumerate() {
        if statements.iter().all(|(_, sql)| count(&replaced(sql, exceptions, Some(number))).is_ok()) {
            problems.push(format!("the exception `{sql}` is not needed: {reason}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// The statement as the parser is shown it, with all exceptions but one.
fn replaced(sql: &str, exceptions: &[Exception<'_>], but: Option<usize>) -> String {
    let meant = exceptions.iter().enumerate().filter(|(number, _)| Some(*number) != but);
    meant.fold(sql.to_owned(), |sql, (_, exception)| sql.replace(exception.sql, exception.instead))
}

/// How many statements the batch has. They need nothing between them, as in Transact-SQL.
fn count(batch: &str) -> Result<usize, ParserError> {
    let mut parser = Parser::new(&MsSqlDialect {}).try_with_sql(batch)?;
    let mut count = 0;
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token().token == Token::EOF {
            return Ok(count);
        }
        parser.parse_statement()?;
        count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: (&str, &str) =
        ("fine", "DECLARE @n int SELECT @n = COUNT(*) FROM [dbo].[Order] WITH (READPAST) WHERE [Id] = @P1");
    const BROKEN: (&str, &str) = ("broken", "SET NOCOUNT ON SELECT FROM WHERE");
    const CODE: (&str, &str) = ("code", "DECLARE @r int EXEC @r = sp_lock @spid1 = 1 SELECT @r AS code");

    #[test]
    fn a_statement_passes_and_a_broken_one_is_named() {
        assert_eq!(check([FINE], &[]), Ok(()));
        let problem = check([FINE, BROKEN], &[]).expect_err("broken");
        assert!(problem.starts_with("`broken`: ") && !problem.contains("`fine`"), "{problem}");
        assert!(check([("empty", "-- nothing")], &[]).is_err());
    }

    #[test]
    fn an_exception_covers_no_more_than_its_own_text() {
        let exception = Exception::new("EXEC @r = ", "EXEC ", "the parser knows no return code");
        assert!(check([CODE], &[]).expect_err("unknown").starts_with("`code`: "));
        assert_eq!(check([FINE, CODE], &[exception]), Ok(()));
        let beside = ("beside", "DECLARE @r int EXEC @r = sp_lock @spid1 = 1 SELECT FROM WHERE");
        assert!(check([beside], &[exception]).is_err());
    }

    #[test]
    fn an_exception_must_be_needed() {
        let needed = Exception::new("EXEC @r = ", "EXEC ", "the parser knows no return code");
        for (sql, instead) in [("COUNT(*)", "1"), ("that is nowhere", "")] {
            let problem = check([FINE, CODE], &[needed, Exception::new(sql, instead, "once")]).expect_err("not needed");
            assert_eq!(problem, format!("the exception `{sql}` is not needed: once"));
        }
    }
}
