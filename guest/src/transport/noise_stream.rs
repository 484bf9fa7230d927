//! A connection over a network: messages of the Noise protocol, each behind its length in two bytes.
//!
//! Whoever dials has the key that the server gave us, or gets no further than the first message. Nothing of
//! this does input or output but `Sealed`, and nothing of it trusts a length.

use std::os::fd::{AsRawFd, OwnedFd};

use snow::{Builder, TransportState};

use crate::carrier::Received;
use crate::sys;
use crate::write_queue::WriteQueue;

/// Both sides prove that they have the key, and both have a part in what the connection is sealed with.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// So that a key which somebody uses for something else as well opens nothing here.
const PROLOGUE: &[u8] = b"cay-guest/1";
const LENGTH: usize = 2;
const TAG: usize = 16;
/// A public key and the seal of nothing.
const HANDSHAKE: usize = 32 + TAG;
const MAX_MESSAGE: usize = 65_535;
const MAX_PLAIN: usize = MAX_MESSAGE - TAG;

/// What a caller has to send first, with its length.
pub const FIRST: usize = LENGTH + HANDSHAKE;
/// What it has to send when it has our answer: a sealed nothing. A first message that somebody has recorded
/// gets an answer, and no further.
pub const SECOND: usize = LENGTH + TAG;

/// The key of those who may call.
pub type Key = [u8; 32];

fn body(message: &[u8]) -> Option<&[u8]> {
    let (length, body) = message.split_first_chunk::<LENGTH>()?;
    (usize::from(u16::from_be_bytes(*length)) == body.len()).then_some(body)
}

fn builder(key: &Key) -> Option<Builder<'_>> {
    Builder::new(PATTERN.parse().ok()?).psk(0, key).ok()?.prologue(PROLOGUE).ok()
}

/// What to answer to a first message, and the state that comes of it; `None` to who does not have the key.
pub fn answer(key: &Key, first: &[u8; FIRST]) -> Option<([u8; FIRST], TransportState)> {
    let mut handshake = builder(key)?.build_responder().ok()?;
    handshake.read_message(body(first)?, &mut []).ok()?;
    let mut answer = [0; FIRST];
    answer[..LENGTH].copy_from_slice(&(HANDSHAKE as u16).to_be_bytes());
    let written = handshake.write_message(&[], &mut answer[LENGTH..]).ok()?;
    (written == HANDSHAKE).then_some(())?;
    Some((answer, handshake.into_transport_mode().ok()?))
}

/// Whether the second message comes of our answer.
pub fn confirms(transport: &mut TransportState, second: &[u8; SECOND]) -> bool {
    body(second).is_some_and(|message| transport.read_message(message, &mut []) == Ok(0))
}

/// A connection whose other end has shown that it has the key.
pub struct Sealed {
    fd: OwnedFd,
    transport: TransportState,
    /// Part of a message, at most; room for a whole one.
    received: Vec<u8>,
    filled: usize,
    /// A sealed message on its way out.
    out: Vec<u8>,
    written: usize,
}

impl Sealed {
    /// Goes on with a descriptor from which the handshake was read and nothing else.
    pub fn new(fd: OwnedFd, transport: TransportState) -> Sealed {
        Sealed {
            fd,
            transport,
            received: vec![0; LENGTH + MAX_MESSAGE],
            filled: 0,
            out: Vec::new(),
            written: 0,
        }
    }

    /// The descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Reads once, and opens what has come of it. No whole message is left behind: nobody would be told of
    /// it.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Received, i32> {
        match sys::read(self.fd.as_raw_fd(), &mut self.received[self.filled..])? {
            None => Ok(Received::Nothing),
            Some(0) => Ok(Received::Closed),
            Some(n) => {
                self.filled += n;
                let more = self.filled == self.received.len();
                let count = self.open(buffer).ok_or(libc::EBADMSG)?;
                Ok(Received::Bytes { count, more })
            }
        }
    }

    fn open(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let (mut from, mut count) = (0, 0);
        while let Some((length, rest)) = self.received[from..self.filled].split_first_chunk::<LENGTH>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(message) = rest.get(..length) else { break };
            count += self.transport.read_message(message, &mut buffer[count..]).ok()?;
            from += LENGTH + length;
        }
        self.received.copy_within(from..self.filled, 0);
        self.filled -= from;
        Some(count)
    }

    /// Seals and writes what the descriptor takes; true when all is gone. `buffer` is for what is on its way.
    pub fn write(&mut self, queue: &mut WriteQueue, buffer: &mut [u8]) -> Result<bool, i32> {
        loop {
            while self.written < self.out.len() {
                match sys::write(self.fd.as_raw_fd(), &self.out[self.written..])? {
                    Some(n) => self.written += n,
                    None => return Ok(false),
                }
            }
            if queue.is_empty() {
                return Ok(true);
            }
            let room = MAX_PLAIN.min(buffer.len());
            let plain = queue.gather(&mut buffer[..room]);
            self.seal(&buffer[..plain]).ok_or(libc::EBADMSG)?;
        }
    }

    fn seal(&mut self, plain: &[u8]) -> Option<()> {
        self.written = 0;
        self.out.resize(LENGTH + plain.len() + TAG, 0);
        let length = self.transport.write_message(plain, &mut self.out[LENGTH..]).ok()?;
        self.out.truncate(LENGTH + length);
        self.out[..LENGTH].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests;
