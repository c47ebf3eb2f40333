//! The server: who is connected, what is held, and how it misbehaves.

use super::{
    locks::Locks,
    request::LogIn,
    run::{Machine, Stop},
    tls::{self, Arrived, Tls, TlsFault},
    wire::{self, ATTENTION, Answer, Complaint, LOGIN, Message},
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, mpsc, watch},
};

/// Longest the server waits for a client to close its end after the session was ended.
const PARTING: Duration = Duration::from_secs(5);
/// User sessions have numbers above those of the system.
const FIRST_SESSION: u16 = 51;

/// The answer that a later acquire is given.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) code: i32,
    pub(super) error: Option<String>,
}

/// A session as [`SimulatedSqlServer::sessions`](super::SimulatedSqlServer::sessions) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimulatedSession {
    /// Its number, which [`kill`](super::SimulatedSqlServer::kill) takes.
    pub id: u16,
    /// The application name that the client gave.
    pub application: String,
    /// The database of the session.
    pub database: String,
}

#[derive(Debug)]
struct Connected {
    shown: SimulatedSession,
    kill: watch::Sender<bool>,
    gone: watch::Receiver<()>,
}

/// What the server was asked for and how it is to behave.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// The text of every batch since the last look.
    pub(super) statements: Vec<String>,
    pub(super) next_codes: VecDeque<Told>,
    pub(super) refuses_log_in: Option<(i32, String)>,
    pub(super) refuses_connections: bool,
    pub(super) tls_fault: Option<TlsFault>,
    /// The errors of procedures and sequences, by their names in small letters.
    pub(super) failing: HashMap<String, (i32, String)>,
    pub(super) delay: Duration,
    pub(super) log_ins: usize,
}

#[derive(Debug, Default)]
struct State {
    locks: Locks,
    sessions: BTreeMap<u16, Connected>,
    last_session: u16,
    sequences: HashMap<String, i64>,
    told: Telling,
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Something was freed.
    pub(super) changed: Notify,
    pub(super) silent: watch::Sender<bool>,
    pub(super) password: String,
    pub(super) tls: Option<Tls>,
}

impl Shared {
    pub(super) fn new(password: &str, tls: Option<Tls>) -> Self {
        let silent = watch::Sender::new(false);
        Self { state: Mutex::default(), changed: Notify::new(), silent, password: password.to_owned(), tls }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn locks<T>(&self, look: impl FnOnce(&mut Locks) -> T) -> T {
        look(&mut self.state().locks)
    }

    /// As [`locks`](Self::locks), and lets those who wait try again.
    pub(super) fn change_locks<T>(&self, change: impl FnOnce(&mut Locks) -> T) -> T {
        let result = self.locks(change);
        self.changed.notify_waiters();
        result
    }

    pub(super) fn tell<T>(&self, tell: impl FnOnce(&mut Telling) -> T) -> T {
        tell(&mut self.state().told)
    }

    pub(super) fn next_told(&self) -> Option<Told> {
        self.state().told.next_codes.pop_front()
    }

    pub(super) fn create_sequence(&self, name: &str) {
        self.state().sequences.insert(name.to_ascii_lowercase(), 0);
    }

    /// The error that a procedure or a sequence was told to raise.
    pub(super) fn failure(&self, name: &str) -> Option<Complaint> {
        self.tell(|told| told.failing.get(name).map(|(number, text)| Complaint::error(*number, text.as_str())))
    }

    pub(super) fn next_value(&self, name: &str) -> Result<i64, Complaint> {
        if let Some(failure) = self.failure(name) {
            return Err(failure);
        }
        let mut state = self.state();
        let value =
            state.sequences.get_mut(name).ok_or_else(|| Complaint::error(208, format!("Invalid object name '{name}'.")))?;
        *value += 1;
        Ok(*value)
    }

    pub(super) fn sessions(&self) -> Vec<SimulatedSession> {
        self.state().sessions.values().map(|connected| connected.shown.clone()).collect()
    }

    /// Ends the sessions: what they hold is free at once, then the clients are told. Resolves when they have closed their ends.
    pub(super) async fn end(&self, which: impl Fn(&SimulatedSession) -> bool) {
        let mut leaving = Vec::new();
        {
            let mut state = self.state();
            let ended: Vec<u16> = state.sessions.iter().filter(|(_, session)| which(&session.shown)).map(|(id, _)| *id).collect();
            for id in ended {
                state.locks.end_session(id);
                if let Some(session) = state.sessions.remove(&id) {
                    session.kill.send_replace(true);
                    leaving.push(session.gone);
                }
            }
        }
        self.changed.notify_waiters();
        for mut gone in leaving {
            // The other end is dropped with the connection's task.
            while gone.changed().await.is_ok() {}
        }
    }

    fn enter(&self, log_in: &LogIn) -> (u16, watch::Receiver<bool>, watch::Sender<()>) {
        let mut state = self.state();
        let id = state.last_session.max(FIRST_SESSION).wrapping_add(1);
        state.last_session = id;
        let (kill, killed) = watch::channel(false);
        let (leaves, gone) = watch::channel(());
        let shown = SimulatedSession { id, application: log_in.application.clone(), database: log_in.database.clone() };
        state.sessions.insert(id, Connected { shown, kill, gone });
        (id, killed, leaves)
    }

    fn leave(&self, session: u16) {
        let mut state = self.state();
        state.sessions.remove(&session);
        state.locks.end_session(session);
        drop(state);
        self.changed.notify_waiters();
    }
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: TcpStream, server: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    if server.tell(|told| told.refuses_connections) {
        return;
    }
    // Whatever ends the connection, the client sees it closed.
    if let Ok(arrived) = tls::greet(stream, &server).await {
        let _ = converse(arrived, &server).await;
    }
}

async fn converse(arrived: Arrived, server: &Arc<Shared>) -> io::Result<()> {
    let Arrived { mut reader, mut writer, log_in: Message { kind: LOGIN, payload } } = arrived else { return Ok(()) };
    let (reader, writer) = (&mut reader, &mut writer);
    let log_in = LogIn::read(&payload)?;
    let wrong = (log_in.password != server.password).then(|| (18456, format!("Login failed for user '{}'.", log_in.user)));
    let refused = server.tell(|told| {
        told.log_ins += 1;
        told.refuses_log_in.clone()
    });
    if let Some((number, text)) = refused.or(wrong) {
        let mut answer = Answer::default();
        answer.complain(&Complaint { number, class: 14, text });
        answer.done(true);
        wire::write(writer, &answer.0).await?;
        return writer.shutdown().await;
    }
    let mut silent = server.silent.subscribe();
    if silent.wait_for(|silent| !*silent).await.is_err() {
        return Ok(());
    }
    let (session, mut killed, _leaves) = server.enter(&log_in);
    let (sender, mut messages) = mpsc::unbounded_channel();
    let pump = async {
        while let Ok(message) = wire::read(reader).await {
            let _ = sender.send(message);
        }
        drop(sender);
    };
    let work = async {
        let result = attend(writer, server, session, &log_in, &mut messages, &mut killed).await;
        server.leave(session);
        let _ = writer.shutdown().await;
        result
    };
    // The client closes its end when it has seen that ours is closed.
    tokio::pin!(pump, work);
    tokio::select! {
        result = &mut work => {
            let _ = tokio::time::timeout(PARTING, pump).await;
            result
        }
        () = &mut pump => work.await,
    }
}

async fn attend(
    writer: &mut (impl AsyncWrite + Unpin),
    server: &Arc<Shared>,
    session: u16,
    log_in: &LogIn,
    messages: &mut mpsc::UnboundedReceiver<Message>,
    killed: &mut watch::Receiver<bool>,
) -> io::Result<()> {
    wire::write(writer, &Answer::log_in(&log_in.database).0).await?;
    loop {
        let message = tokio::select! {
            biased;
            _ = killed.wait_for(|killed| *killed) => return Ok(()),
            message = messages.recv() => message,
        };
        let Some(message) = message else { return Ok(()) };
        let answer = if message.kind == ATTENTION {
            Answer::attention_done()
        } else {
            let machine = Machine {
                server,
                session,
                database: &log_in.database,
                user: &log_in.user,
                later: messages,
                killed,
                variables: HashMap::new(),
                answer: Answer::default(),
                caught: None,
                failed: false,
            };
            match machine.carry_out(&message).await {
                Ok(answer) => answer,
                Err(Stop::Attention) => Answer::attention_done(),
                Err(Stop::Ended | Stop::Thrown(_)) => return Ok(()),
            }
        };
        let delay = server.tell(|told| told.delay);
        let mut silent = server.silent.subscribe();
        tokio::select! {
            biased;
            _ = killed.wait_for(|killed| *killed) => return Ok(()),
            () = closed(messages) , if *silent.borrow() => return Ok(()),
            () = async {
                tokio::time::sleep(delay).await;
                let _ = silent.wait_for(|silent| !*silent).await;
            } => {}
        }
        wire::write(writer, &answer.0).await?;
    }
}

/// Resolves when the client has closed its end; what it sends meanwhile is lost, as a silent server's answers are.
async fn closed(messages: &mut mpsc::UnboundedReceiver<Message>) {
    while messages.recv().await.is_some() {}
}
