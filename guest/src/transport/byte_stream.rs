//! What carries the frames: a socket as it is, or one over a network, sealed.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sealed::Sealed;
use crate::sys;
use crate::write_queue::WriteQueue;

/// What reading once has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes of frames, none if a message is not whole yet; `more` may wait in the kernel.
    Bytes {
        /// How many.
        count: usize,
        /// The kernel gave as much as was asked for.
        more: bool,
    },
    /// Nothing is there now.
    Nothing,
    /// The other end is gone.
    Closed,
}

/// The one connection.
pub enum Carrier {
    /// Frames as they are, for who can only be the server.
    Plain(OwnedFd),
    /// Frames in sealed messages.
    Sealed(Box<Sealed>),
}

impl Carrier {
    /// What to watch.
    pub fn fd(&self) -> RawFd {
        match self {
            Carrier::Plain(fd) => fd.as_raw_fd(),
            Carrier::Sealed(sealed) => sealed.fd().as_raw_fd(),
        }
    }

    /// Reads once.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Received, i32> {
        match self {
            Carrier::Plain(fd) => Ok(match sys::read(fd.as_raw_fd(), buffer)? {
                None => Received::Nothing,
                Some(0) => Received::Closed,
                Some(count) => Received::Bytes { count, more: count == buffer.len() },
            }),
            Carrier::Sealed(sealed) => sealed.read(buffer),
        }
    }

    /// Writes what the descriptor takes; true when all is gone.
    pub fn write(&mut self, queue: &mut WriteQueue, buffer: &mut [u8]) -> Result<bool, i32> {
        match self {
            Carrier::Plain(fd) => queue.flush(fd.as_raw_fd()).map(|()| queue.is_empty()),
            Carrier::Sealed(sealed) => sealed.write(queue, buffer),
        }
    }
}
