//! Accepts TCP clients on the port that the server asked for, until they have proven that they have the key.
//!
//! Any process can connect, also one in the sandbox. A client without the key costs a descriptor and less
//! than a kilobyte, for a few seconds at most. Their number is bounded: a new one replaces the one that has
//! been silent longest.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use snow::TransportState;

use crate::failure::Failure;
use crate::poller::{Poller, Token};
use crate::sys;
use crate::transport::noise_stream::{self, FIRST, Key, NoiseStream, SECOND};
use crate::transport::sockets;
use crate::value::Value;

/// Clients in the handshake at once.
const MAX_CALLERS: usize = 32;
/// Timeout of the handshake.
const PATIENCE: Duration = Duration::from_secs(3);
/// Clients accepted before other work gets a turn.
const ACCEPTS_PER_TURN: usize = 16;

struct Caller {
    number: u32,
    since: Instant,
    fd: OwnedFd,
    message: [u8; FIRST],
    filled: usize,
    /// Present when it has sent a valid first message.
    transport: Option<Box<TransportState>>,
}

/// The listening socket.
struct Door {
    fd: OwnedFd,
    port: u16,
    key: Key,
}

/// The listening socket and the clients in the handshake.
#[derive(Default)]
pub struct NoiseListener {
    door: Option<Door>,
    waiting: Vec<Caller>,
    next: u32,
}

enum Step {
    Wait,
    Gone,
    Arrived,
}

impl NoiseListener {
    /// Listens on a port for clients that have the key; an earlier key becomes invalid. Returns the port,
    /// which matters for port 0.
    pub fn listen(&mut self, request: &Value, poller: &Poller) -> Result<u16, Failure> {
        let port = request.int("port").and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or_else(|| Failure::new("invalid_argument", "A port is a number up to 65535"))?;
        let key = request.bytes("key").and_then(|key| Key::try_from(key).ok());
        let key = key.ok_or_else(|| Failure::new("invalid_argument", "A key is 32 bytes"))?;
        if self.door.as_ref().is_none_or(|door| door.port != port) {
            let failed = |errno| Failure::from_errno(errno, &format!("listen on port {port}"));
            let (fd, port) = sockets::listen_tcp(port).map_err(failed)?;
            poller.add(fd.as_raw_fd(), Token::Door, true, false).map_err(failed)?;
            self.door = Some(Door { fd, port, key });
        }
        let door = self.door.as_mut().ok_or_else(|| Failure::new("internal", "Nobody listens"))?;
        door.key = key;
        self.waiting.clear();
        Ok(door.port)
    }

    /// The port of the guest itself, which is not reported as a port of the sandbox.
    pub fn port(&self) -> Option<u16> {
        self.door.as_ref().map(|door| door.port)
    }

    /// Whether there are clients in the handshake.
    pub fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Accepts waiting clients.
    pub fn accept(&mut self, poller: &Poller) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(door) = &self.door else { return };
            let Ok(fd) = sockets::accept(&door.fd) else { return };
            sockets::no_delay(&fd);
            self.next = self.next.wrapping_add(1);
            let mut caller = Caller {
                number: self.next,
                since: Instant::now(),
                fd,
                message: [0; FIRST],
                filled: 0,
                transport: None,
            };
            // A client whose first message is valid is kept, and an invalid one replaces no other.
            if matches!(caller.step(&door.key), Step::Gone) {
                continue;
            }
            if self.waiting.len() >= MAX_CALLERS {
                // Clients that have proven the key stay until their timeout; if there are only such, the new
                // one is dropped.
                let Some(silent) = self.waiting.iter().position(|caller| caller.transport.is_none()) else {
                    continue;
                };
                self.waiting.remove(silent);
            }
            if poller.add(caller.fd.as_raw_fd(), Token::Caller(caller.number), true, false).is_ok() {
                self.waiting.push(caller);
            }
        }
    }

    /// A client has sent something, or is gone. Returns the connection once it has proven the key.
    pub fn ready(&mut self, number: u32, poller: &Poller) -> Option<NoiseStream> {
        let key = &self.door.as_ref()?.key;
        let at = self.waiting.iter().position(|caller| caller.number == number)?;
        match self.waiting[at].step(key) {
            Step::Wait => None,
            Step::Gone => {
                self.waiting.remove(at);
                None
            }
            Step::Arrived => {
                let Caller { fd, transport, .. } = self.waiting.remove(at);
                poller.remove(fd.as_raw_fd());
                Some(NoiseStream::new(fd, *transport?))
            }
        }
    }

    /// Drops clients after their timeout.
    pub fn sweep(&mut self) {
        self.waiting.retain(|caller| caller.since.elapsed() < PATIENCE);
    }
}

impl Caller {
    /// Reads exactly the handshake, so that the encrypted connection starts behind it.
    fn step(&mut self, key: &Key) -> Step {
        loop {
            let wanted = if self.transport.is_some() { SECOND } else { FIRST };
            match sys::read(self.fd.as_raw_fd(), &mut self.message[self.filled..wanted]) {
                Ok(None) => return Step::Wait,
                Ok(Some(0)) | Err(_) => return Step::Gone,
                Ok(Some(n)) => self.filled += n,
            }
            if self.filled < wanted {
                continue;
            }
            self.filled = 0;
            if let Some(transport) = &mut self.transport {
                let confirmed = self
                    .message
                    .first_chunk()
                    .is_some_and(|second| noise_stream::confirms(transport, second));
                return if confirmed { Step::Arrived } else { Step::Gone };
            }
            let Some((answer, transport)) = noise_stream::answer(key, &self.message) else {
                return Step::Gone;
            };
            // Nothing was sent before, so the socket takes all of it.
            if sys::write(self.fd.as_raw_fd(), &answer) != Ok(Some(answer.len())) {
                return Step::Gone;
            }
            self.transport = Some(Box::new(transport));
            // The rest cannot have arrived yet.
            return Step::Wait;
        }
    }
}

#[cfg(test)]
mod tests;
