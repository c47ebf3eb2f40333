//! Carries out the statements of one session.

use super::{
    locks::{Mode, Name},
    request::{self, Call},
    script::{Condition, Expression, Statement, parse},
    server::{Shared, Told},
    wire::{ATTENTION, Answer, BATCH, Complaint, Message, RPC, Value},
};
use std::{collections::HashMap, pin::Pin, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

/// Why a request is not carried on.
pub(super) enum Stop {
    /// The client withdrew it.
    Attention,
    /// The session has ended.
    Ended,
    /// A statement failed.
    Thrown(Complaint),
}

impl From<Complaint> for Stop {
    fn from(complaint: Complaint) -> Self {
        Self::Thrown(complaint)
    }
}

/// One session and its request.
pub(super) struct Machine<'a> {
    pub(super) server: &'a Shared,
    pub(super) session: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
    pub(super) later: &'a mut mpsc::UnboundedReceiver<Message>,
    pub(super) killed: &'a mut watch::Receiver<bool>,
    pub(super) variables: HashMap<String, Value>,
    pub(super) answer: Answer,
    pub(super) caught: Option<Complaint>,
    pub(super) failed: bool,
}

type Step<'b> = Pin<Box<dyn Future<Output = Result<(), Stop>> + Send + 'b>>;

impl Machine<'_> {
    /// Carries out the message and makes its answer.
    pub(super) async fn carry_out(mut self, message: &Message) -> Result<Answer, Stop> {
        let result = match message.kind {
            BATCH => match request::batch(&message.payload) {
                Ok(text) => self.batch(&text).await,
                Err(error) => Err(Complaint::error(4002, error.to_string()).into()),
            },
            RPC => match Call::read(&message.payload) {
                Ok(call) => self.call(call).await,
                Err(error) => Err(Complaint::error(8009, error.to_string()).into()),
            },
            other => Err(Complaint::error(4004, format!("a request of the kind {other:#x}")).into()),
        };
        match result {
            Err(Stop::Thrown(complaint)) => self.complain(&complaint),
            Err(stop) => return Err(stop),
            Ok(()) => {}
        }
        let finish = if message.kind == RPC { Answer::procedure_done } else { Answer::done };
        finish(&mut self.answer, self.failed);
        Ok(self.answer)
    }

    fn complain(&mut self, complaint: &Complaint) {
        self.answer.complain(complaint);
        self.failed = true;
    }

    async fn batch(&mut self, text: &str) -> Result<(), Stop> {
        let statements = parse(text)?;
        self.server.tell(|told| told.statements.push(text.to_owned()));
        self.each(&statements, false).await
    }

    async fn call(&mut self, call: Call) -> Result<(), Stop> {
        let Call { procedure, parameters } = call;
        let named = |name: &str| name.trim_start_matches('@').to_ascii_lowercase();
        if procedure.eq_ignore_ascii_case("sp_executesql") {
            let mut parameters = parameters.into_iter();
            let Some((_, Value::Text(text))) = parameters.next() else {
                return Err(
                    Complaint::error(214, "Procedure expects parameter '@statement' of type 'ntext/nchar/nvarchar'.").into()
                );
            };
            self.variables = parameters.map(|(name, value)| (named(&name), value)).collect();
            let result = self.batch(&text).await;
            self.answer.return_status(0);
            return result;
        }
        let arguments = parameters.into_iter().map(|(name, value)| (named(&name), value)).collect();
        let (code, thrown) = self.procedure(&procedure.to_ascii_lowercase(), &arguments).await?;
        if let Some(complaint) = thrown {
            self.complain(&complaint);
        }
        self.answer.return_status(code);
        Ok(())
    }

    fn each<'b>(&'b mut self, statements: &'b [Statement], catches: bool) -> Step<'b> {
        Box::pin(async move {
            for statement in statements {
                match self.step(statement, catches).await {
                    // Outside of a `TRY` a failed statement does not keep the next one from running.
                    Err(Stop::Thrown(complaint)) if !catches => self.complain(&complaint),
                    result => result?,
                }
            }
            Ok(())
        })
    }

    async fn step(&mut self, statement: &Statement, catches: bool) -> Result<(), Stop> {
        match statement {
            Statement::Nothing => {}
            Statement::Assign(assigned) => {
                for (name, value) in assigned {
                    let value = self.value(value)?;
                    self.variables.insert(name.clone(), value);
                }
            }
            Statement::Select(columns) => {
                let mut row = Vec::with_capacity(columns.len());
                for (name, value) in columns {
                    row.push((name.clone(), self.value(value)?));
                }
                self.answer.row(&row, false);
            }
            Statement::Execute { result, procedure, arguments } => {
                let mut values = HashMap::new();
                for (name, value) in arguments {
                    values.insert(name.clone(), self.value(value)?);
                }
                let (code, thrown) = self.procedure(procedure, &values).await?;
                if let Some(complaint) = thrown {
                    // An error that is caught keeps the code from being assigned.
                    if catches {
                        return Err(complaint.into());
                    }
                    self.complain(&complaint);
                }
                if let Some(name) = result {
                    self.variables.insert(name.clone(), Value::Number(code.into()));
                }
            }
            Statement::If { condition, then, otherwise } => {
                let branch = if self.holds(condition)? { Some(then) } else { otherwise.as_ref() };
                if let Some(branch) = branch {
                    self.each(std::slice::from_ref(branch), catches).await?;
                }
            }
            Statement::While { condition, body } => {
                while self.holds(condition)? {
                    self.each(std::slice::from_ref(body), catches).await?;
                }
            }
            Statement::Try { body, caught } => match self.each(body, true).await {
                Err(Stop::Thrown(complaint)) => {
                    self.caught = Some(complaint);
                    self.each(caught, catches).await?;
                }
                result => result?,
            },
            Statement::Block(body) => self.each(body, catches).await?,
        }
        Ok(())
    }

    fn holds(&self, condition: &Condition) -> Result<bool, Complaint> {
        let (left, right) = (self.value(&condition.left)?, self.value(&condition.right)?);
        Ok(match (&left, condition.comparison.as_str(), &right) {
            (Value::Null, ..) | (.., Value::Null) => false,
            (left, "=", right) => left == right,
            (left, "<>", right) => left != right,
            (Value::Number(left), ">=", Value::Number(right)) => left >= right,
            (Value::Number(left), "<=", Value::Number(right)) => left <= right,
            (Value::Number(left), "<", Value::Number(right)) => left < right,
            (Value::Number(left), ">", Value::Number(right)) => left > right,
            (_, comparison, _) => return Err(Complaint::error(102, format!("a comparison by {comparison}"))),
        })
    }

    fn value(&self, expression: &Expression) -> Result<Value, Complaint> {
        Ok(match expression {
            Expression::Null => Value::Null,
            Expression::Number(number) => Value::Number(*number),
            Expression::Text(text) => Value::Text(text.clone()),
            Expression::Variable(name) if name == "@spid" => Value::Number(self.session.into()),
            Expression::Variable(name) => self.variables.get(name).cloned().unwrap_or(Value::Null),
            Expression::Arithmetic(left, sign, right) => match (self.value(left)?, sign, self.value(right)?) {
                (Value::Null, ..) | (.., Value::Null) => Value::Null,
                (Value::Number(left), '+', Value::Number(right)) => Value::Number(left.saturating_add(right)),
                (Value::Number(left), '*', Value::Number(right)) => Value::Number(left.saturating_mul(right)),
                _ => return Err(Complaint::error(402, format!("the data types are incompatible in the {sign} operator."))),
            },
            Expression::NextValueFor(name) => Value::Number(self.server.next_value(name)?),
            Expression::Call(function, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(argument)?);
                }
                self.function(function, &values)?
            }
        })
    }

    fn function(&self, function: &str, arguments: &[Value]) -> Result<Value, Complaint> {
        let name = |principal: &str, resource: &str| Name::new(self.database, principal, resource);
        Ok(match (function, arguments) {
            ("applock_mode", [Value::Text(principal), Value::Text(resource), Value::Text(_)]) => {
                let mode = self.server.locks(|locks| locks.mode(self.session, &name(principal, resource)));
                Value::Text(mode.map_or("NoLock".to_owned(), |mode| format!("{mode:?}")))
            }
            ("applock_test", [Value::Text(principal), Value::Text(resource), Value::Text(mode), Value::Text(_)]) => {
                let Some(mode) = Mode::named(mode) else { return Ok(Value::Null) };
                let free = self.server.locks(|locks| locks.is_grantable(self.session, &name(principal, resource), mode));
                Value::Number(free.into())
            }
            ("error_number", []) => self.caught.as_ref().map_or(Value::Null, |caught| Value::Number(caught.number.into())),
            ("error_message", []) => self.caught.as_ref().map_or(Value::Null, |caught| Value::Text(caught.text.clone())),
            // As with most collations, a text is counted in units of UTF-16.
            ("len", [Value::Text(text)]) => {
                Value::Number(i64::try_from(text.trim_end_matches(' ').encode_utf16().count()).unwrap_or(i64::MAX))
            }
            ("rtrim", [Value::Text(text)]) => Value::Text(text.trim_end_matches(' ').to_owned()),
            ("substring", [Value::Text(text), Value::Number(from), Value::Number(count)]) => {
                let at = |place: i64| usize::try_from(place).unwrap_or_default();
                let (from, end) = (at(from - 1), at(from.saturating_add(*count) - 1));
                let units: Vec<u16> = text.encode_utf16().take(end).skip(from).collect();
                Value::Text(String::from_utf16_lossy(&units))
            }
            ("db_name", []) => Value::Text(self.database.to_owned()),
            ("suser_sname", []) => Value::Text(self.user.to_owned()),
            ("serverproperty", _) => Value::Null,
            _ => return Err(Complaint::error(195, format!("'{function}' is not a function that the simulator knows."))),
        })
    }

    async fn procedure(&mut self, procedure: &str, arguments: &HashMap<String, Value>) -> Result<(i32, Option<Complaint>), Stop> {
        let text = |name: &str, default: &str| match arguments.get(name) {
            Some(Value::Text(text)) => text.clone(),
            _ => default.to_owned(),
        };
        let resource = text("resource", "");
        let name = Name::new(self.database, &text("dbprincipal", "public"), &resource);
        let invalid =
            || Complaint::error(15600, format!("An invalid parameter or option was specified for procedure '{procedure}'."));
        let is_session = text("lockowner", "Transaction").eq_ignore_ascii_case("session");
        if let Some(failure) = self.server.failure(procedure) {
            return Ok((-999, Some(failure)));
        }
        match procedure {
            "sp_getapplock" => {
                if let Some(Told { code, error }) = self.server.next_told() {
                    return Ok((code, error.map(|error| Complaint::error(15600, error))));
                }
                let (Some(mode), true, false) = (Mode::named(&text("lockmode", "")), is_session, resource.is_empty()) else {
                    return Ok((-999, Some(invalid())));
                };
                let wait = match arguments.get("locktimeout") {
                    Some(Value::Number(wait)) => *wait,
                    _ => -1,
                };
                Ok((self.acquire(&name, mode, wait).await?, None))
            }
            "sp_releaseapplock" => {
                if !self.server.change_locks(|locks| locks.release(self.session, &name)) {
                    let told = format!(
                        "Cannot release the application lock (Database Principal: 'public', Resource: '{resource}') \
                         because it is not currently held."
                    );
                    return Ok((-999, Some(Complaint::error(1223, told))));
                }
                Ok((0, None))
            }
            _ => Err(Complaint::error(2812, format!("Could not find stored procedure '{procedure}'.")).into()),
        }
    }

    async fn acquire(&mut self, name: &Name, mode: Mode, wait: i64) -> Result<i32, Stop> {
        if self.server.locks(|locks| locks.acquire(self.session, name, mode)) {
            return Ok(0);
        }
        if wait == 0 {
            self.server.locks(|locks| locks.give_up(self.session, name));
            return Ok(-1);
        }
        let deadline = u64::try_from(wait).ok().and_then(|wait| Instant::now().checked_add(Duration::from_millis(wait)));
        self.server.locks(|locks| locks.wait(self.session, name));
        let result = loop {
            let changed = self.server.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.server.locks(|locks| locks.acquire(self.session, name, mode)) {
                break Ok(1);
            }
            tokio::select! {
                () = changed => {}
                () = until(deadline) => break Ok(-1),
                _ = self.killed.wait_for(|killed| *killed) => break Err(Stop::Ended),
                message = self.later.recv() => match message {
                    Some(Message { kind: ATTENTION, .. }) => break Err(Stop::Attention),
                    Some(_) => {}
                    None => break Err(Stop::Ended),
                },
            }
        };
        self.server.change_locks(|locks| locks.give_up(self.session, name));
        result
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
