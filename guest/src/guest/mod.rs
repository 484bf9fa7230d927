//! The guest: how it answers requests and handles events.

mod connecting;
mod datagrams;
mod egress;
mod events;
mod freezing;
mod requests;
mod sending;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::commands::reader::{Reader, Step};
use crate::commands::{Commands, request};
use crate::context::{BUFFER_BYTES, Context};
use crate::datagram_port::DatagramPort;
use crate::egress::Egress;
use crate::egress::datagrams::Unframer;
use crate::failure::Failure;
use crate::files;
use crate::forward::{Forward, Outcome};
use crate::poller::{Poller, Ready, Token};
use crate::ports::{self, Watcher};
use crate::process_table;
use crate::sys;
use crate::tasks::{Mailbox, Tasks};
use crate::timers::Timer;
use crate::tools;
use crate::transport::byte_stream::{ByteStream, Received};
use crate::transport::connection::{Connection, Event};
use crate::transport::noise_listener::NoiseListener;
use crate::transport::sockets::{self, Backoff, Endpoint};
use crate::value::Value;

/// Bytes that may wait to be written before streams have to wait.
const HIGH_WATER: usize = 1 << 20;
/// Reads from the connection before other work gets a turn.
const READS_PER_TURN: usize = 8;
/// Pieces that go on in one call of the kernel.
const MAX_RUN: usize = 64;
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const CALLERS_INTERVAL: Duration = Duration::from_secs(1);
const PORTS_INTERVAL: Duration = Duration::from_millis(250);
/// After this many bytes, memory is returned to the kernel when the guest is idle.
const TRIM_AFTER: usize = 1 << 20;

/// What serves a stream.
enum Handler {
    Reader(Reader),
    Task(Arc<Mailbox>),
    Forward(Box<Forward>),
    Ports(Watcher),
    Flow(Unframer),
    DatagramPort(Box<DatagramPort>),
    Still,
}

/// The state of the guest.
pub struct Guest {
    endpoint: Endpoint,
    boot: [u8; 16],
    born: Instant,
    context: Context,
    backoff: Backoff,
    listener: Option<OwnedFd>,
    callers: NoiseListener,
    callers_armed: bool,
    socket: Option<ByteStream>,
    connection: Connection,
    /// What is read from the server.
    incoming: Vec<u8>,
    /// Numbers the connections, so that an old timer does not end a new one.
    serial: u64,
    write_watched: bool,
    handlers: HashMap<u32, Handler>,
    ready: VecDeque<u32>,
    commands: Commands,
    tasks: Tasks,
    egress: Egress,
    ports_armed: bool,
    shutdown_at: Option<Instant>,
    frozen: Option<freezing::Frozen>,
    poke: OwnedFd,
    signals: OwnedFd,
    carried: usize,
    /// The guest is finished.
    pub over: bool,
    /// It was asked to restart when it is finished.
    pub again: bool,
    /// The signal from outside that ended it.
    pub ended_by: Option<i32>,
}

impl Guest {
    /// A guest that has not connected yet.
    pub fn new(
        endpoint: Endpoint,
        poller: Poller,
        commands: Commands,
        tasks: Tasks,
        egress: Egress,
        poke: OwnedFd,
        signals: OwnedFd,
    ) -> Result<Guest, i32> {
        poller.add(poke.as_raw_fd(), Token::Poke, true, false)?;
        poller.add(signals.as_raw_fd(), Token::Signals, true, false)?;
        let mut guest = Guest {
            endpoint,
            boot: sys::random_bytes(),
            born: Instant::now(),
            context: Context::new(poller),
            backoff: Backoff::default(),
            listener: None,
            callers: NoiseListener::default(),
            callers_armed: false,
            socket: None,
            connection: Connection::default(),
            incoming: vec![0; BUFFER_BYTES],
            serial: 0,
            write_watched: false,
            handlers: HashMap::new(),
            ready: VecDeque::new(),
            commands,
            tasks,
            egress,
            ports_armed: false,
            shutdown_at: None,
            frozen: None,
            poke,
            signals,
            carried: 0,
            over: false,
            again: false,
            ended_by: None,
        };
        match &guest.endpoint {
            Endpoint::Dial(_) => guest.dial(),
            Endpoint::Serve(path) => {
                let listener = sockets::listen(path)?;
                guest.context.poller.add(listener.as_raw_fd(), Token::Listener, true, false)?;
                guest.listener = Some(listener);
            }
        }
        Ok(guest)
    }

    /// Sends what is ready, waits for events, and handles them.
    pub fn turn(&mut self, ready: &mut Vec<Ready>) {
        self.settle();
        self.context.poller.wait(self.context.timers.sleep_ms(), ready);
        for event in ready.iter() {
            match event.token {
                Token::Link => self.link_ready(event.readable),
                Token::Listener => self.accept(),
                Token::Door => self.called(),
                Token::Caller(number) => self.caller_ready(number),
                Token::Signals => self.signalled(),
                Token::Poke => self.poked(),
                Token::Command(key, part) => self.commands.ready(key, part, &mut self.context),
                Token::Leftover(fd) => self.commands.leftover(fd, &mut self.context.buffer),
                Token::Forward(stream) => self.make_ready(stream),
                Token::Datagrams(number) => self.datagrams_ready(number),
                token => self.egress_ready(token),
            }
        }
        while let Some(timer) = self.context.timers.due() {
            self.timer(timer);
        }
    }
}
