//! Frames that wait to be written.
//!
//! Small frames are joined in one buffer, large ones keep their buffer, and all of it leaves with one
//! `writev` per turn of the loop.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use crate::sys;
use crate::transport::frame::{HEADER, Header, Kind};

/// Frames up to this size are copied behind one another.
const SMALL: usize = 8192;
/// How much is packed into one buffer of small frames.
const PACK: usize = 32_768;
const MAX_IOV: usize = 64;

/// Bytes to be written, in order.
#[derive(Default)]
pub struct WriteQueue {
    buffers: VecDeque<Vec<u8>>,
    /// How much of the first buffer is written already.
    written: usize,
    bytes: usize,
}

impl WriteQueue {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = WriteQueue::default();
    }

    /// Adds a frame.
    pub fn frame(&mut self, kind: Kind, channel: u8, stream: u32, payload: &[u8]) {
        let header = Header { length: payload.len(), kind, channel, stream }.encode();
        if payload.len() <= SMALL {
            let buffer = self.pack(HEADER + payload.len());
            buffer.extend_from_slice(&header);
            buffer.extend_from_slice(payload);
            self.bytes += HEADER + payload.len();
        } else {
            let mut buffer = Vec::with_capacity(HEADER + payload.len());
            buffer.extend_from_slice(&header);
            buffer.extend_from_slice(payload);
            self.whole(buffer);
        }
    }

    /// Adds a buffer of whole frames without copying it, unless it is small.
    pub fn whole(&mut self, buffer: Vec<u8>) {
        self.bytes += buffer.len();
        if buffer.len() <= SMALL {
            self.pack(buffer.len()).extend_from_slice(&buffer);
        } else {
            self.buffers.push_back(buffer);
        }
    }

    fn pack(&mut self, more: usize) -> &mut Vec<u8> {
        let fits = self.buffers.back().is_some_and(|last| last.len() + more <= PACK);
        if !fits {
            self.buffers.push_back(Vec::with_capacity(more.max(256)));
        }
        self.buffers.back_mut().expect("a buffer was just added")
    }

    /// Writes what the descriptor takes; `Ok` when the queue is empty or the descriptor is full.
    pub fn flush(&mut self, fd: RawFd) -> Result<(), i32> {
        while self.bytes > 0 {
            let mut iov: [libc::iovec; MAX_IOV] =
                [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_IOV];
            let mut count = 0;
            for (index, buffer) in self.buffers.iter().take(MAX_IOV).enumerate() {
                let skip = if index == 0 { self.written } else { 0 };
                iov[index] =
                    libc::iovec { iov_base: buffer[skip..].as_ptr() as *mut _, iov_len: buffer.len() - skip };
                count += 1;
            }
            // SAFETY: the vectors point into buffers that are not touched during the call.
            let n = unsafe { libc::writev(fd, iov.as_ptr(), count) };
            if n < 0 {
                match sys::errno() {
                    libc::EINTR => continue,
                    libc::EAGAIN => return Ok(()),
                    errno => return Err(errno),
                }
            }
            self.advance(n as usize);
        }
        Ok(())
    }

    /// Takes the first bytes out, as many as there are or there is room for.
    pub fn gather(&mut self, into: &mut [u8]) -> usize {
        let mut count = 0;
        let mut skip = self.written;
        for buffer in &self.buffers {
            let piece = &buffer[skip..];
            let n = piece.len().min(into.len() - count);
            into[count..count + n].copy_from_slice(&piece[..n]);
            count += n;
            skip = 0;
            if count == into.len() {
                break;
            }
        }
        self.advance(count);
        count
    }

    fn advance(&mut self, mut n: usize) {
        self.bytes -= n;
        while n > 0 {
            let left = self.buffers[0].len() - self.written;
            if n < left {
                self.written += n;
                return;
            }
            n -= left;
            self.written = 0;
            self.buffers.pop_front();
        }
        if self.buffers.is_empty() && self.buffers.capacity() > 64 {
            self.buffers = VecDeque::new();
        }
    }

    /// Everything that waits, in one piece: for tests, which have no descriptor.
    pub fn take(&mut self) -> Vec<u8> {
        let mut all: Vec<u8> = self.buffers.drain(..).flatten().collect();
        all.drain(..self.written);
        self.clear();
        all
    }
}
