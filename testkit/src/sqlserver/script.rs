//! The few statements of Transact-SQL around application locks, as a tree.

use super::wire::Complaint;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Variable(String),
    Text(String),
    Number(i64),
    Sign(char),
}

#[derive(Clone, Debug)]
pub(super) enum Expression {
    Null,
    Number(i64),
    Text(String),
    Variable(String),
    Call(String, Vec<Self>),
    NextValueFor(String),
    /// Of two numbers, by `+` or `*`.
    Arithmetic(Box<Self>, char, Box<Self>),
}

#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) left: Expression,
    pub(super) comparison: String,
    pub(super) right: Expression,
}

#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// Session settings, which change nothing here.
    Nothing,
    Assign(Vec<(String, Expression)>),
    Select(Vec<(String, Expression)>),
    Execute {
        result: Option<String>,
        procedure: String,
        arguments: Vec<(String, Expression)>,
    },
    If {
        condition: Condition,
        then: Box<Self>,
        otherwise: Option<Box<Self>>,
    },
    While {
        condition: Condition,
        body: Box<Self>,
    },
    Try {
        body: Vec<Self>,
        caught: Vec<Self>,
    },
    Block(Vec<Self>),
}

fn unknown(what: &str) -> Complaint {
    Complaint::error(
        102,
        format!("Incorrect syntax near '{what}': the simulator knows only the statements of application locks."),
    )
}

fn word(mut word: String, rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    while let Some(next) = rest.next_if(|next| next.is_alphanumeric() || matches!(next, '_' | '@' | '#')) {
        word.push(next);
    }
    word
}

fn tokens(text: &str) -> Result<Vec<Token>, Complaint> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            first if first.is_whitespace() => {}
            '@' => tokens.push(Token::Variable(word(String::new(), &mut rest).to_ascii_lowercase())),
            '0'..='9' => {
                let digits = word(first.to_string(), &mut rest);
                tokens.push(Token::Number(digits.parse().map_err(|_| unknown(&digits))?));
            }
            'N' | 'n' if rest.peek() == Some(&'\'') => {}
            first if first.is_alphabetic() || first == '_' => tokens.push(Token::Word(word(first.to_string(), &mut rest))),
            '\'' | '[' => {
                let end = if first == '[' { ']' } else { first };
                let mut quoted = String::new();
                loop {
                    match rest.next() {
                        Some(next) if next == end && rest.next_if_eq(&end).is_none() => break,
                        Some(next) => quoted.push(next),
                        None => return Err(Complaint::error(105, "Unclosed quotation mark after the character string.")),
                    }
                }
                tokens.push(if first == '[' { Token::Word(quoted) } else { Token::Text(quoted) });
            }
            sign => tokens.push(Token::Sign(sign)),
        }
    }
    Ok(tokens)
}

/// The statements of a batch.
pub(super) fn parse(text: &str) -> Result<Vec<Statement>, Complaint> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens, at: 0 };
    let mut statements = Vec::new();
    while parser.peek().is_some() {
        statements.push(parser.statement()?);
    }
    Ok(statements)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += 1;
        token
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(next)) if next.eq_ignore_ascii_case(word))
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn skip_sign(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn must(&self, found: bool) -> Result<(), Complaint> {
        if found { Ok(()) } else { Err(unknown(&format!("{:?}", self.peek()))) }
    }

    fn until_end(&mut self, of: &str) -> Result<Vec<Statement>, Complaint> {
        let mut body = Vec::new();
        while !self.skip_word("end") {
            self.must(self.peek().is_some())?;
            body.push(self.statement()?);
        }
        if !of.is_empty() {
            let found = self.skip_word(of);
            self.must(found)?;
        }
        self.skip_sign(';');
        Ok(body)
    }

    fn statement(&mut self) -> Result<Statement, Complaint> {
        let Some(Token::Word(first)) = self.next() else { return Err(unknown("a statement without a name")) };
        let statement = match first.to_ascii_lowercase().as_str() {
            "declare" => Statement::Assign(self.declarations()?),
            "set" if matches!(self.peek(), Some(Token::Word(_))) => {
                self.at += 2;
                Statement::Nothing
            }
            "set" => Statement::Assign(vec![self.assignment()?]),
            "select" if self.assigns() => {
                let mut assigned = vec![self.assignment()?];
                while self.skip_sign(',') {
                    assigned.push(self.assignment()?);
                }
                Statement::Assign(assigned)
            }
            "select" => self.select()?,
            "exec" | "execute" => self.execute()?,
            "if" => {
                let condition = self.condition()?;
                let then = Box::new(self.statement()?);
                let otherwise = if self.skip_word("else") { Some(Box::new(self.statement()?)) } else { None };
                Statement::If { condition, then, otherwise }
            }
            "while" => Statement::While { condition: self.condition()?, body: Box::new(self.statement()?) },
            "begin" if self.skip_word("try") => {
                let body = self.until_end("try")?;
                let begins = self.skip_word("begin") && self.skip_word("catch");
                self.must(begins)?;
                Statement::Try { body, caught: self.until_end("catch")? }
            }
            "begin" => Statement::Block(self.until_end("")?),
            other => return Err(unknown(other)),
        };
        self.skip_sign(';');
        Ok(statement)
    }

    /// Names, types, lengths; of those variables that are given a value at once, the values.
    fn declarations(&mut self) -> Result<Vec<(String, Expression)>, Complaint> {
        let mut values = Vec::new();
        while let Some(Token::Variable(name)) = self.peek().cloned() {
            self.at += 2;
            if self.skip_sign('(') {
                self.at += 2;
            }
            if self.skip_sign('=') {
                values.push((name, self.expression()?));
            }
            if !self.skip_sign(',') {
                break;
            }
        }
        Ok(values)
    }

    fn condition(&mut self) -> Result<Condition, Complaint> {
        let left = self.expression()?;
        let mut comparison = String::new();
        while let Some(Token::Sign(sign @ ('<' | '>' | '='))) = self.peek() {
            comparison.push(*sign);
            self.at += 1;
        }
        Ok(Condition { left, comparison, right: self.expression()? })
    }

    fn assigns(&self) -> bool {
        matches!(self.peek(), Some(Token::Variable(_))) && self.tokens.get(self.at + 1) == Some(&Token::Sign('='))
    }

    fn assignment(&mut self) -> Result<(String, Expression), Complaint> {
        let Some(Token::Variable(name)) = self.next() else { return Err(unknown("an assignment")) };
        let found = self.skip_sign('=');
        self.must(found)?;
        Ok((name, self.expression()?))
    }

    fn select(&mut self) -> Result<Statement, Complaint> {
        let mut columns = Vec::new();
        loop {
            let value = self.expression()?;
            let name = match self.skip_word("as").then(|| self.next()) {
                Some(Some(Token::Word(name))) => name,
                _ => String::new(),
            };
            columns.push((name, value));
            if !self.skip_sign(',') {
                return Ok(Statement::Select(columns));
            }
        }
    }

    fn execute(&mut self) -> Result<Statement, Complaint> {
        let result = if self.assigns() { self.next() } else { None };
        let result = match result {
            Some(Token::Variable(name)) => {
                self.skip_sign('=');
                Some(name)
            }
            _ => None,
        };
        let procedure = self.name()?;
        let mut arguments = Vec::new();
        while self.assigns() {
            arguments.push(self.assignment()?);
            if !self.skip_sign(',') {
                break;
            }
        }
        Ok(Statement::Execute { result, procedure, arguments })
    }

    /// A name with its schema, in small letters.
    fn name(&mut self) -> Result<String, Complaint> {
        let mut parts = Vec::new();
        loop {
            let Some(Token::Word(part)) = self.next() else { return Err(unknown("a name")) };
            parts.push(part.to_ascii_lowercase());
            if !self.skip_sign('.') {
                return Ok(parts.join("."));
            }
        }
    }

    /// A sum of products.
    fn expression(&mut self) -> Result<Expression, Complaint> {
        let mut sum = self.product()?;
        while self.skip_sign('+') {
            sum = Expression::Arithmetic(Box::new(sum), '+', Box::new(self.product()?));
        }
        Ok(sum)
    }

    fn product(&mut self) -> Result<Expression, Complaint> {
        let mut product = self.operand()?;
        while self.skip_sign('*') {
            product = Expression::Arithmetic(Box::new(product), '*', Box::new(self.operand()?));
        }
        Ok(product)
    }

    fn operand(&mut self) -> Result<Expression, Complaint> {
        Ok(match self.next() {
            Some(Token::Number(number)) => Expression::Number(number),
            Some(Token::Sign('-')) => match self.next() {
                Some(Token::Number(number)) => Expression::Number(-number),
                _ => return Err(unknown("-")),
            },
            Some(Token::Text(text)) => Expression::Text(text),
            Some(Token::Variable(name)) => Expression::Variable(name),
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("null") => Expression::Null,
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("next") => {
                let found = self.skip_word("value") && self.skip_word("for");
                self.must(found)?;
                Expression::NextValueFor(self.name()?)
            }
            Some(Token::Word(word)) => {
                let found = self.skip_sign('(');
                self.must(found)?;
                let mut arguments = Vec::new();
                while !self.skip_sign(')') {
                    arguments.push(self.expression()?);
                    self.skip_sign(',');
                }
                Expression::Call(word.to_ascii_lowercase(), arguments)
            }
            other => return Err(unknown(&format!("{other:?}"))),
        })
    }
}
