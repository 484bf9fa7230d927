//! Those who dial the port that the server had us listen on, until they have shown that they have its key.
//!
//! Anybody can dial, whatever runs in the sandbox among them. A stranger costs a descriptor and less than a
//! kilobyte, for a few seconds at most, and there are never more than a few: one more takes the place of the
//! one who has been silent longest.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use snow::TransportState;

use crate::failure::Failure;
use crate::link;
use crate::poller::{Poller, Token};
use crate::sealed::{self, FIRST, Key, SECOND, Sealed};
use crate::sys;
use crate::value::Value;

/// Callers at once.
const MAX_CALLERS: usize = 32;
/// How long one may take to show that it has the key.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many are taken before others have their turn.
const ACCEPTS_PER_TURN: usize = 16;

struct Caller {
    number: u32,
    since: Instant,
    fd: OwnedFd,
    message: [u8; FIRST],
    filled: usize,
    /// There when it has sent a good first message.
    transport: Option<Box<TransportState>>,
}

/// Where we listen.
struct Door {
    fd: OwnedFd,
    port: u16,
    key: Key,
}

/// The door, and those who stand before it.
#[derive(Default)]
pub struct Callers {
    door: Option<Door>,
    waiting: Vec<Caller>,
    next: u32,
}

enum Step {
    Wait,
    Gone,
    Arrived,
}

impl Callers {
    /// Listens on a port for who has the key; from now on an earlier key opens nothing. Returns the port,
    /// which matters if any will do.
    pub fn listen(&mut self, request: &Value, poller: &Poller) -> Result<u16, Failure> {
        let port = request.int("port").and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or_else(|| Failure::new("invalid_argument", "A port is a number up to 65535"))?;
        let key = request.bytes("key").and_then(|key| Key::try_from(key).ok());
        let key = key.ok_or_else(|| Failure::new("invalid_argument", "A key is 32 bytes"))?;
        if self.door.as_ref().is_none_or(|door| door.port != port) {
            let failed = |errno| Failure::from_errno(errno, &format!("listen on port {port}"));
            let (fd, port) = link::listen_tcp(port).map_err(failed)?;
            poller.add(fd.as_raw_fd(), Token::Door, true, false).map_err(failed)?;
            self.door = Some(Door { fd, port, key });
        }
        let door = self.door.as_mut().ok_or_else(|| Failure::new("internal", "Nobody listens"))?;
        door.key = key;
        self.waiting.clear();
        Ok(door.port)
    }

    /// The port that is ours, and no business of the sandbox.
    pub fn port(&self) -> Option<u16> {
        self.door.as_ref().map(|door| door.port)
    }

    /// Somebody waits.
    pub fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes those who have dialled.
    pub fn accept(&mut self, poller: &Poller) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(door) = &self.door else { return };
            let Ok(fd) = link::accept(&door.fd) else { return };
            link::no_delay(&fd);
            self.next = self.next.wrapping_add(1);
            let mut caller = Caller {
                number: self.next,
                since: Instant::now(),
                fd,
                message: [0; FIRST],
                filled: 0,
                transport: None,
            };
            // Who comes with the key in hand is no stranger any more, and nonsense takes nobody's place.
            if matches!(caller.step(&door.key), Step::Gone) {
                continue;
            }
            if self.waiting.len() >= MAX_CALLERS {
                // Who has shown the key stays, for its time; with nobody else to send away the new one goes.
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

    /// A caller has sent something, or is gone. Returns the connection of one who has the key.
    pub fn ready(&mut self, number: u32, poller: &Poller) -> Option<Sealed> {
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
                Some(Sealed::new(fd, *transport?))
            }
        }
    }

    /// Sends those away who have had their time.
    pub fn sweep(&mut self) {
        self.waiting.retain(|caller| caller.since.elapsed() < PATIENCE);
    }
}

impl Caller {
    /// Reads no more than what has to come, so that the connection goes on behind it.
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
                let confirmed =
                    self.message.first_chunk().is_some_and(|second| sealed::confirms(transport, second));
                return if confirmed { Step::Arrived } else { Step::Gone };
            }
            let Some((answer, transport)) = sealed::answer(key, &self.message) else { return Step::Gone };
            // Nothing was sent before, so that all of it finds room.
            if sys::write(self.fd.as_raw_fd(), &answer) != Ok(Some(answer.len())) {
                return Step::Gone;
            }
            self.transport = Some(Box::new(transport));
            // The rest cannot be there yet.
            return Step::Wait;
        }
    }
}

#[cfg(test)]
mod tests;
