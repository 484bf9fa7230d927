//! The byte stream that carries the frames: a unix socket, or an encrypted TCP connection.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys;
use crate::transport::noise_stream::NoiseStream;
use crate::transport::write_queue::WriteQueue;

/// The result of one read.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes of frames; none if an encrypted message is not complete yet.
    Bytes {
        /// How many.
        count: usize,
        /// The kernel gave as much as was asked for, so there may be more.
        more: bool,
    },
    /// Nothing to read now.
    Nothing,
    /// The other end has closed.
    Closed,
}

/// The connection to the server.
pub enum ByteStream {
    /// A unix socket, which only the server can use.
    Plain(OwnedFd),
    /// Encrypted messages over TCP.
    Noise(Box<NoiseStream>),
}

impl ByteStream {
    /// The descriptor to watch.
    pub fn fd(&self) -> RawFd {
        match self {
            ByteStream::Plain(fd) => fd.as_raw_fd(),
            ByteStream::Noise(stream) => stream.fd().as_raw_fd(),
        }
    }

    /// Reads once.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Received, i32> {
        match self {
            ByteStream::Plain(fd) => Ok(match sys::read(fd.as_raw_fd(), buffer)? {
                None => Received::Nothing,
                Some(0) => Received::Closed,
                Some(count) => Received::Bytes { count, more: count == buffer.len() },
            }),
            ByteStream::Noise(stream) => stream.read(buffer),
        }
    }

    /// Writes what the descriptor takes; true when the queue is empty.
    pub fn write(&mut self, queue: &mut WriteQueue, buffer: &mut [u8]) -> Result<bool, i32> {
        match self {
            ByteStream::Plain(fd) => queue.flush(fd.as_raw_fd()).map(|()| queue.is_empty()),
            ByteStream::Noise(stream) => stream.write(queue, buffer),
        }
    }
}
