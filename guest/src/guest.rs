//! The guest itself: what it answers to each request, and what it does when something is ready.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::commands::reader::{Reader, Step};
use crate::commands::{Commands, request};
use crate::connection::{Connection, Event};
use crate::failure::Failure;
use crate::files;
use crate::forward::{Forward, Outcome};
use crate::link::{self, Backoff, Way};
use crate::memory::Memory;
use crate::poller::{Poller, Ready, Token};
use crate::ports::{self, Watcher};
use crate::process_table;
use crate::sys;
use crate::tasks::{Mailbox, Tasks};
use crate::timers::{Timer, Timers};
use crate::value::Value;

/// What waits to be written before streams have to wait.
const HIGH_WATER: usize = 1 << 20;
/// What is read from the connection before others have their turn.
const READS_PER_TURN: usize = 8;
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const PORTS_INTERVAL: Duration = Duration::from_millis(250);
/// After this much went through, memory is given back to the kernel when all is quiet.
const TRIM_AFTER: usize = 1 << 20;

/// Who serves a stream.
enum Handler {
    Reader(Reader),
    Task(Arc<Mailbox>),
    Forward(Box<Forward>),
    Ports(Watcher),
}

/// Everything the guest knows.
pub struct Guest {
    way: Way,
    boot: [u8; 16],
    born: Instant,
    poller: Poller,
    timers: Timers,
    backoff: Backoff,
    listener: Option<OwnedFd>,
    socket: Option<OwnedFd>,
    connection: Connection,
    /// Numbers the connections, so that an old timer does not end a new one.
    serial: u64,
    write_watched: bool,
    handlers: HashMap<u32, Handler>,
    ready: VecDeque<u32>,
    commands: Commands,
    tasks: Tasks,
    memory: Memory,
    ports_armed: bool,
    shutdown_at: Option<Instant>,
    poke: OwnedFd,
    signals: OwnedFd,
    buffer: Vec<u8>,
    carried: usize,
    /// The guest is done.
    pub over: bool,
}

impl Guest {
    /// A guest that has not connected yet.
    pub fn new(way: Way, poller: Poller, commands: Commands, tasks: Tasks, poke: OwnedFd, signals: OwnedFd) -> Result<Guest, i32> {
        poller.add(poke.as_raw_fd(), Token::Poke, true, false)?;
        poller.add(signals.as_raw_fd(), Token::Signals, true, false)?;
        let mut guest = Guest {
            way,
            boot: sys::random_bytes(),
            born: Instant::now(),
            poller,
            timers: Timers::default(),
            backoff: Backoff::default(),
            listener: None,
            socket: None,
            connection: Connection::default(),
            serial: 0,
            write_watched: false,
            handlers: HashMap::new(),
            ready: VecDeque::new(),
            commands,
            tasks,
            memory: Memory::default(),
            ports_armed: false,
            shutdown_at: None,
            poke,
            signals,
            buffer: vec![0; 131_072],
            carried: 0,
            over: false,
        };
        match &guest.way {
            Way::Dial(_) => guest.dial(),
            Way::Serve(path) => {
                let listener = link::listen(path)?;
                guest.poller.add(listener.as_raw_fd(), Token::Listener, true, false)?;
                guest.listener = Some(listener);
            }
        }
        Ok(guest)
    }

    /// Sends what there is to send, sleeps until something happens, and handles it.
    pub fn turn(&mut self, ready: &mut Vec<Ready>) {
        self.settle();
        self.poller.wait(self.timers.sleep_ms(), ready);
        for event in ready.iter() {
            match event.token {
                Token::Link => self.link_ready(event.readable),
                Token::Listener => self.accept(),
                Token::Signals => self.signalled(),
                Token::Poke => self.poked(),
                Token::Command(key, part) => self.commands.ready(key, part, &self.poller, &mut self.buffer, &mut self.memory),
                Token::Leftover(fd) => self.commands.leftover(fd, &mut self.buffer),
                Token::Forward(stream) => self.make_ready(stream),
            }
        }
        while let Some(timer) = self.timers.due() {
            self.timer(timer);
        }
    }

    // The connection.

    fn dial(&mut self) {
        let Way::Dial(path) = &self.way else { return };
        match link::dial(path) {
            Ok(socket) => self.connected(socket),
            Err(_) => self.dial_later(),
        }
    }

    fn dial_later(&mut self) {
        if matches!(self.way, Way::Dial(_)) {
            let pause = self.backoff.pause();
            self.timers.after(pause, Timer::Dial);
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        if let Ok(socket) = link::accept(listener) {
            self.disconnect();
            self.connected(socket);
        }
    }

    fn connected(&mut self, socket: OwnedFd) {
        if self.poller.add(socket.as_raw_fd(), Token::Link, true, false).is_err() {
            self.dial_later();
            return;
        }
        self.socket = Some(socket);
        self.write_watched = false;
        self.serial += 1;
        self.timers.after(HELLO_TIMEOUT, Timer::Hello(self.serial));
        self.connection = Connection::new(&Value::map([
            ("protocol", 1.into()),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("boot", Value::Bytes(self.boot.to_vec())),
            ("features", Value::Array(Vec::new())),
        ]));
    }

    /// Lets go of the connection and all its streams. Commands go on.
    fn disconnect(&mut self) {
        self.socket = None;
        self.connection = Connection::default();
        self.ready.clear();
        for (stream, handler) in std::mem::take(&mut self.handlers) {
            self.release(stream, handler);
        }
    }

    fn release(&mut self, stream: u32, handler: Handler) {
        match handler {
            Handler::Reader(reader) => self.commands.detach(reader.key, stream),
            Handler::Task(mailbox) => mailbox.gone(),
            Handler::Forward(_) | Handler::Ports(_) => {}
        }
    }

    fn lost(&mut self) {
        if self.socket.is_some() {
            self.disconnect();
            self.dial_later();
        }
    }

    fn link_ready(&mut self, readable: bool) {
        if !readable {
            return;
        }
        let mut events = Vec::new();
        for _ in 0..READS_PER_TURN {
            let Some(socket) = &self.socket else { return };
            match sys::read(socket.as_raw_fd(), &mut self.buffer) {
                Ok(Some(0)) | Err(_) => return self.lost(),
                Ok(None) => return,
                Ok(Some(n)) => {
                    self.carried += n;
                    let whole = n < self.buffer.len();
                    let result = self.connection.receive(&self.buffer[..n], &mut events);
                    for event in events.drain(..) {
                        self.event(event);
                    }
                    if result.is_err() {
                        return self.lost();
                    }
                    if whole {
                        return;
                    }
                }
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Hello(hello) => {
                self.backoff.reset();
                if let Some(limit) = hello.int("memoryLimit").filter(|limit| *limit > 0) {
                    self.memory.limit = Some(limit as u64);
                    self.guard_memory();
                }
                if let Some(name) = hello.text("hostname").filter(|name| name.len() <= 64) {
                    // SAFETY: the name lives for the call. Where it is not allowed the runtime has set one.
                    unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) };
                }
            }
            Event::Open(stream, request) => {
                if let Err(failure) = self.open(stream, request) {
                    self.connection.reset(stream, &failure);
                }
            }
            Event::Message(stream, message) => {
                if let Some(Handler::Reader(reader)) = self.handlers.get(&stream) {
                    if message.flag("closeStdin") {
                        self.commands.close_input(reader.key, &self.poller);
                    }
                }
            }
            Event::Data(stream, _, bytes) => match self.handlers.get_mut(&stream) {
                Some(Handler::Reader(reader)) => self.commands.input(reader.key, stream, bytes, &self.poller),
                Some(Handler::Task(mailbox)) => mailbox.data(bytes),
                Some(Handler::Forward(forward)) => {
                    forward.data(bytes);
                    self.make_ready(stream);
                }
                Some(Handler::Ports(_)) | None => self.connection.taken(stream, bytes.len()),
            },
            Event::Credit(stream, amount) => {
                match self.handlers.get_mut(&stream) {
                    Some(Handler::Reader(reader)) => {
                        let acknowledged = reader.credit(amount);
                        self.commands.acknowledge(reader.key, acknowledged, &self.poller);
                    }
                    Some(Handler::Task(mailbox)) => mailbox.credit(amount),
                    _ => {}
                }
                self.make_ready(stream);
            }
            Event::Ended(stream) => match self.handlers.get_mut(&stream) {
                Some(Handler::Task(mailbox)) => mailbox.ended(),
                Some(Handler::Forward(forward)) => {
                    forward.ended();
                    self.make_ready(stream);
                }
                _ => {}
            },
            Event::Reset(stream) => {
                if let Some(handler) = self.handlers.remove(&stream) {
                    self.release(stream, handler);
                }
            }
            Event::Hangup(delay) => {
                self.disconnect();
                self.backoff.reset();
                if matches!(self.way, Way::Dial(_)) {
                    self.timers.after(Duration::from_millis(delay), Timer::Dial);
                }
            }
        }
    }

    // Requests.

    fn open(&mut self, stream: u32, request: Value) -> Result<(), Failure> {
        let op = request.text("op").unwrap_or_default().to_owned();
        match op.as_str() {
            "exec" => self.exec(stream, &request)?,
            "attach" => {
                let id = request::id(&request)?;
                let key = self.commands.find(id).ok_or_else(|| Failure::new("not_found", format!("There is no command \"{id}\"")))?;
                self.attach(stream, key, request.int("offset").unwrap_or(0).max(0) as u64, true);
            }
            "commands" => self.answer(stream, &self.commands.list()),
            "signal" => {
                self.commands.signal(&request, &mut self.timers)?;
                self.answer(stream, &Value::map([]));
            }
            "resize" => {
                self.commands.resize(&request)?;
                self.answer(stream, &Value::map([]));
            }
            "forget" => {
                self.commands.forget(&request)?;
                self.answer(stream, &Value::map([]));
            }
            "connect" => {
                let forward = Forward::open(stream, &request, &self.poller)?;
                self.handlers.insert(stream, Handler::Forward(Box::new(forward)));
                self.make_ready(stream);
            }
            "ports" => {
                let mut watcher = Watcher::default();
                if let Some(message) = watcher.changes(&ports::listening()) {
                    self.connection.message(stream, &message);
                }
                if request.flag("watch") {
                    self.handlers.insert(stream, Handler::Ports(watcher));
                    if !self.ports_armed {
                        self.ports_armed = true;
                        self.timers.after(PORTS_INTERVAL, Timer::Ports);
                    }
                } else {
                    self.connection.end(stream);
                }
            }
            "stats" => {
                let stats = self.stats();
                self.answer(stream, &stats);
            }
            "shutdown" => {
                self.answer(stream, &Value::map([]));
                self.shut_down(request.int("graceMs").unwrap_or(0).clamp(0, 3_600_000) as u64);
            }
            op if files::handles(op) => {
                let op = op.to_owned();
                let mailbox = self.tasks.start(stream, &op, request)?;
                self.handlers.insert(stream, Handler::Task(mailbox));
            }
            op => return Err(Failure::new("unsupported", format!("The guest has no operation \"{}\"", op.escape_default()))),
        }
        Ok(())
    }

    fn answer(&mut self, stream: u32, message: &Value) {
        self.connection.message(stream, message);
        self.connection.end(stream);
    }

    fn exec(&mut self, stream: u32, request: &Value) -> Result<(), Failure> {
        if self.shutdown_at.is_some() {
            return Err(Failure::new("failed_precondition", "The sandbox is shutting down"));
        }
        if let Some(key) = self.commands.find(request::id(request)?) {
            self.attach(stream, key, 0, true);
            return Ok(());
        }
        let request = request::exec(request)?;
        let key = self.commands.start(request, &self.poller, &mut self.timers, &mut self.memory)?;
        self.attach(stream, key, 0, false);
        self.guard_memory();
        Ok(())
    }

    fn attach(&mut self, stream: u32, key: u64, offset: u64, existing: bool) {
        self.commands.attach(key, stream);
        self.handlers.insert(stream, Handler::Reader(Reader::new(key, offset, existing)));
        self.make_ready(stream);
    }

    fn stats(&mut self) -> Value {
        let ours = std::process::id() as i32;
        let supervisors: std::collections::HashSet<i32> = self.commands.supervisor_pids().copied().collect();
        let processes = process_table::read().iter().filter(|process| process.pid != ours && !supervisors.contains(&process.pid)).count();
        let (used, total) = self.memory.usage();
        Value::map([
            ("processes", (processes as i64).into()),
            ("memoryBytes", (used as i64).into()),
            ("memoryTotalBytes", (total as i64).into()),
            ("oomKills", (self.memory.all_kills() as i64).into()),
            ("uptimeMs", (self.born.elapsed().as_millis() as i64).into()),
        ])
    }

    // Signals, pokes and timers.

    fn signalled(&mut self) {
        let mut info = [0u8; 128 * 8];
        let mut stop = false;
        while let Ok(Some(n)) = sys::read(self.signals.as_raw_fd(), &mut info) {
            for one in info[..n].chunks_exact(128) {
                let number = u32::from_ne_bytes([one[0], one[1], one[2], one[3]]) as i32;
                stop |= number == libc::SIGTERM || number == libc::SIGINT;
            }
            if n < info.len() {
                break;
            }
        }
        loop {
            let mut status = 0;
            // SAFETY: the status lives for the call.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
            if pid <= 0 {
                break;
            }
            self.commands.reaped(pid, status, &self.poller, &mut self.buffer, &mut self.timers, &mut self.memory);
        }
        if stop {
            self.shut_down(5_000);
        }
    }

    fn poked(&mut self) {
        let mut count = [0u8; 8];
        let _ = sys::read(self.poke.as_raw_fd(), &mut count);
        self.commands.progress(&self.poller, &mut self.buffer, &mut self.timers, &mut self.memory);
        for stream in self.tasks.bell.answer() {
            self.make_ready(stream);
        }
        self.tasks.sweep();
    }

    fn timer(&mut self, timer: Timer) {
        match timer {
            Timer::Dial if self.socket.is_none() => self.dial(),
            Timer::Dial => {}
            Timer::Hello(serial) => {
                if serial == self.serial && self.socket.is_some() && !self.connection.greeted() {
                    self.lost();
                }
            }
            Timer::CommandTimeout(key) => self.commands.timeout(key, &mut self.timers),
            Timer::KillTree(supervisor, attempt) => self.commands.kill_tree(supervisor, attempt, &mut self.timers),
            Timer::Drained(key) => self.commands.finish(key, &self.poller, &mut self.memory),
            Timer::Ports => self.look_at_ports(),
            Timer::Memory => {
                self.memory.armed = false;
                self.guard_memory();
            }
            Timer::Shutdown => self.look_at_shutdown(),
        }
    }

    fn look_at_ports(&mut self) {
        self.ports_armed = false;
        let mut now = None;
        for (stream, handler) in &mut self.handlers {
            if let Handler::Ports(watcher) = handler {
                self.ports_armed = true;
                if self.connection.may_send(*stream) {
                    if let Some(message) = watcher.changes(now.get_or_insert_with(ports::listening)) {
                        self.connection.message(*stream, &message);
                    }
                }
            }
        }
        if self.ports_armed {
            self.timers.after(PORTS_INTERVAL, Timer::Ports);
        }
    }

    /// Looks at the memory as long as commands run.
    fn guard_memory(&mut self) {
        if self.memory.armed || self.memory.limit.is_none() || self.commands.running == 0 {
            return;
        }
        let ours = std::process::id() as i32;
        let supervisors: Vec<i32> = self.commands.supervisor_pids().copied().collect();
        let (killed, again) = self.memory.guard(|pid| pid == ours || supervisors.contains(&pid));
        if let Some(pid) = killed {
            self.commands.guarded(pid);
        }
        self.memory.armed = true;
        self.timers.after(again, Timer::Memory);
    }

    fn shut_down(&mut self, grace_ms: u64) {
        let at = Instant::now() + Duration::from_millis(grace_ms);
        self.shutdown_at = Some(self.shutdown_at.map_or(at, |earlier| earlier.min(at)));
        for pid in self.others() {
            // SAFETY: no pointers.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        self.timers.after(Duration::ZERO, Timer::Shutdown);
    }

    /// Everybody in the sandbox but us, our supervisors and who was put in from outside, like a bridge.
    fn others(&self) -> Vec<i32> {
        let all = process_table::read();
        let supervisors: Vec<i32> = self.commands.supervisor_pids().copied().collect();
        process_table::descendants(&all, std::process::id() as i32).into_iter().filter(|pid| !supervisors.contains(pid)).collect()
    }

    fn look_at_shutdown(&mut self) {
        let Some(at) = self.shutdown_at else { return };
        let others = self.others();
        if others.is_empty() || Instant::now() >= at {
            for pid in others {
                // SAFETY: no pointers.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            self.settle();
            self.over = true;
        } else {
            self.timers.after(Duration::from_millis(20), Timer::Shutdown);
        }
    }

    // Sending.

    fn make_ready(&mut self, stream: u32) {
        match self.handlers.get_mut(&stream) {
            Some(Handler::Reader(Reader { queued, .. })) => {
                if !std::mem::replace(queued, true) {
                    self.ready.push_back(stream);
                }
            }
            Some(Handler::Forward(forward)) => {
                if !std::mem::replace(&mut forward.queued, true) {
                    self.ready.push_back(stream);
                }
            }
            Some(Handler::Task(_)) => self.ready.push_back(stream),
            _ => {}
        }
    }

    /// Hands on what the commands have, and writes what the connection takes.
    fn settle(&mut self) {
        for _ in 0..8 {
            for (stream, failure) in std::mem::take(&mut self.commands.failed) {
                self.handlers.remove(&stream);
                self.connection.reset(stream, &failure);
            }
            for (stream, bytes) in std::mem::take(&mut self.commands.taken) {
                self.connection.taken(stream, bytes);
            }
            for stream in std::mem::take(&mut self.commands.wake) {
                self.make_ready(stream);
            }
            self.pump();
            if !self.flush() {
                break;
            }
            if self.ready.is_empty() && self.commands.wake.is_empty() {
                break;
            }
        }
        // Whoever is still ready has another turn at once.
        if !self.ready.is_empty() && self.connection.out.is_empty() {
            sys::poke(self.poke.as_raw_fd());
        }
        if self.carried > TRIM_AFTER && self.handlers.is_empty() && self.connection.out.is_empty() {
            self.carried = 0;
            // SAFETY: no pointers.
            unsafe { libc::malloc_trim(0) };
        }
    }

    /// Lets ready streams send, one frame each in turn, until enough waits to be written.
    fn pump(&mut self) {
        while self.connection.out.len() < HIGH_WATER {
            let Some(stream) = self.ready.pop_front() else { return };
            let again = match self.handlers.get_mut(&stream) {
                Some(Handler::Reader(reader)) => {
                    reader.queued = false;
                    let step = match self.commands.get(reader.key) {
                        Some(command) => reader.step(stream, command, &mut self.connection),
                        None => {
                            self.connection.reset(stream, &Failure::new("not_found", "The command was forgotten"));
                            Step::Done
                        }
                    };
                    let key = reader.key;
                    if step == Step::Done {
                        self.handlers.remove(&stream);
                        self.commands.detach(key, stream);
                    }
                    step == Step::More
                }
                Some(Handler::Task(mailbox)) => {
                    if mailbox.collect(&mut self.connection) {
                        self.handlers.remove(&stream);
                    }
                    false
                }
                Some(Handler::Forward(forward)) => {
                    forward.queued = false;
                    let outcome = forward.step(&mut self.connection, &self.poller, &mut self.buffer, true);
                    match outcome {
                        Outcome::Open => {}
                        Outcome::Done => {
                            self.handlers.remove(&stream);
                        }
                        Outcome::Failed(failure) => {
                            self.handlers.remove(&stream);
                            self.connection.reset(stream, &failure);
                        }
                    }
                    false
                }
                _ => false,
            };
            if again {
                self.make_ready(stream);
            }
        }
    }

    /// Writes; true when everything went out.
    fn flush(&mut self) -> bool {
        let Some(socket) = &self.socket else {
            self.connection.out.clear();
            return false;
        };
        let before = self.connection.out.len();
        if self.connection.out.flush(socket.as_raw_fd()).is_err() {
            self.lost();
            return false;
        }
        self.carried += before - self.connection.out.len();
        let waiting = !self.connection.out.is_empty();
        if waiting != self.write_watched {
            self.write_watched = waiting;
            self.poller.set(socket.as_raw_fd(), Token::Link, true, waiting);
        }
        !waiting
    }
}
