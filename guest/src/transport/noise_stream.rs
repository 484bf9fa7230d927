//! An encrypted TCP connection: messages of the Noise protocol, each with a length of two bytes before it.
//!
//! A client without the key that the server gave us gets no further than the first message. Only
//! `NoiseStream` does input and output, and no length is trusted.

use std::os::fd::{AsRawFd, OwnedFd};

use snow::{Builder, TransportState};

use crate::sys;
use crate::transport::byte_stream::Received;
use crate::transport::write_queue::WriteQueue;

/// Both sides prove that they have the key, and both contribute to the session keys.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Binds the key to this protocol: used for another one it opens nothing here.
const PROLOGUE: &[u8] = b"cay-guest/1";
const LENGTH: usize = 2;
const TAG: usize = 16;
/// A public key and the tag of an empty payload.
const HANDSHAKE: usize = 32 + TAG;
const MAX_MESSAGE: usize = 65_535;
const MAX_PLAIN: usize = MAX_MESSAGE - TAG;

/// The first message of a client, with its length.
pub const FIRST: usize = LENGTH + HANDSHAKE;
/// The second message of a client: an empty payload. A replayed first message gets an answer, and no further.
pub const SECOND: usize = LENGTH + TAG;

/// The key of clients.
pub type Key = [u8; 32];

fn body(message: &[u8]) -> Option<&[u8]> {
    let (length, body) = message.split_first_chunk::<LENGTH>()?;
    (usize::from(u16::from_be_bytes(*length)) == body.len()).then_some(body)
}

fn builder(key: &Key) -> Option<Builder<'_>> {
    Builder::new(PATTERN.parse().ok()?).psk(0, key).ok()?.prologue(PROLOGUE).ok()
}

/// The answer to a first message, and the resulting state; `None` if the client does not have the key.
pub fn answer(key: &Key, first: &[u8; FIRST]) -> Option<([u8; FIRST], TransportState)> {
    let mut handshake = builder(key)?.build_responder().ok()?;
    handshake.read_message(body(first)?, &mut []).ok()?;
    let mut answer = [0; FIRST];
    answer[..LENGTH].copy_from_slice(&(HANDSHAKE as u16).to_be_bytes());
    let written = handshake.write_message(&[], &mut answer[LENGTH..]).ok()?;
    (written == HANDSHAKE).then_some(())?;
    Some((answer, handshake.into_transport_mode().ok()?))
}

/// Whether the second message belongs to our answer.
pub fn confirms(transport: &mut TransportState, second: &[u8; SECOND]) -> bool {
    body(second).is_some_and(|message| transport.read_message(message, &mut []) == Ok(0))
}

/// A connection whose client has proven that it has the key.
pub struct NoiseStream {
    fd: OwnedFd,
    transport: TransportState,
    /// An incomplete message; has room for a whole one.
    received: Vec<u8>,
    filled: usize,
    /// An encrypted message that is being written.
    out: Vec<u8>,
    written: usize,
}

impl NoiseStream {
    /// Continues with a descriptor from which exactly the handshake was read.
    pub fn new(fd: OwnedFd, transport: TransportState) -> NoiseStream {
        NoiseStream {
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

    /// Reads once and decrypts. It leaves no complete message behind, because epoll would not report it.
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

    /// Encrypts and writes what the descriptor takes; true when all is written. `buffer` is scratch space.
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
