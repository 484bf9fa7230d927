//! The guest itself: what it answers to each request, and what it does when something is ready.

mod freezing;
mod requests;
mod sending;
mod wakings;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::callers::Callers;
use crate::carrier::{Carrier, Received};
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
const CALLERS_INTERVAL: Duration = Duration::from_secs(1);
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
    callers: Callers,
    callers_armed: bool,
    socket: Option<Carrier>,
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
    frozen: Option<freezing::Frozen>,
    poke: OwnedFd,
    signals: OwnedFd,
    buffer: Vec<u8>,
    carried: usize,
    /// The guest is done.
    pub over: bool,
    /// It was asked to begin anew when it is done.
    pub again: bool,
    /// The signal from outside that it ends for.
    pub ended_by: Option<i32>,
}

impl Guest {
    /// A guest that has not connected yet.
    pub fn new(
        way: Way,
        poller: Poller,
        commands: Commands,
        tasks: Tasks,
        poke: OwnedFd,
        signals: OwnedFd,
    ) -> Result<Guest, i32> {
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
            callers: Callers::default(),
            callers_armed: false,
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
            frozen: None,
            poke,
            signals,
            buffer: vec![0; 131_072],
            carried: 0,
            over: false,
            again: false,
            ended_by: None,
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
                Token::Door => self.called(),
                Token::Caller(number) => self.caller_ready(number),
                Token::Signals => self.signalled(),
                Token::Poke => self.poked(),
                Token::Command(key, part) => {
                    self.commands.ready(key, part, &self.poller, &mut self.buffer, &mut self.memory)
                }
                Token::Leftover(fd) => self.commands.leftover(fd, &mut self.buffer),
                Token::Forward(stream) => self.make_ready(stream),
            }
        }
        while let Some(timer) = self.timers.due() {
            self.timer(timer);
        }
    }
}
