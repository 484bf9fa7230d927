//! Carries messages between the kernel and the server, and keeps those that were not answered yet.

use super::fuse::{self, ANSWER_HEADER, BATCH_FORGET, FORGET, INIT, INTERRUPT, MOST_MESSAGE};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What is kept of the kernel's messages. Beyond that the kernel keeps them, and its callers wait.
const MOST_HELD: usize = 16 * 1024 * 1024;
const MOST_WAITING: usize = 1024;
/// Messages that have no answer are dropped beyond that: the server then keeps what the kernel has forgotten.
const MOST_OUT: usize = 2 * MOST_HELD;
const DIAL_EVERY: Duration = Duration::from_millis(100);
/// A server that has kept a connection for so long serves.
const SERVED: Duration = Duration::from_secs(2);
const READ_AT_ONCE: usize = 256 * 1024;
/// Before a message that an earlier server may have answered already.
const REPEATED: u32 = 1;
/// Length and flags.
const FRAME_HEADER: usize = 8;
/// The number of the answer by which the server ends the mount.
const END: u64 = u64::MAX;

pub(super) struct Pump {
    device: OwnedFd,
    socket: PathBuf,
    id: String,
    at: CString,
    patience: Duration,
    server: Option<UnixStream>,
    /// Since when there is no server that answers.
    away: Instant,
    /// When this server was reached, and whether it has answered anything since.
    reached: Instant,
    answered: bool,
    /// Messages without an answer, by their numbers.
    waiting: BTreeMap<u64, Vec<u8>>,
    held: usize,
    /// Bytes for the server, and how many of them are sent.
    out: Vec<u8>,
    sent: usize,
    /// Bytes of the server that are no whole answer yet.
    coming: Vec<u8>,
    message: Vec<u8>,
}

/// The mount has ended.
struct Ended;

impl Pump {
    pub(super) fn new(device: OwnedFd, socket: PathBuf, id: String, at: CString, patience: Duration) -> Pump {
        Pump {
            device,
            socket,
            id,
            at,
            patience,
            server: None,
            away: Instant::now(),
            reached: Instant::now(),
            answered: false,
            waiting: BTreeMap::new(),
            held: 0,
            out: Vec::new(),
            sent: 0,
            coming: Vec::new(),
            message: vec![0; MOST_MESSAGE],
        }
    }

    pub(super) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Connects to the server, and gives it all that an earlier one has not answered.
    pub(super) fn dial(&mut self) -> io::Result<()> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_nonblocking(true)?;
        self.out.clear();
        self.sent = 0;
        self.coming.clear();
        let id = self.id.clone().into_bytes();
        self.frame(0, &id);
        let waiting = std::mem::take(&mut self.waiting);
        for message in waiting.values() {
            self.frame(REPEATED, message);
        }
        self.waiting = waiting;
        self.server = Some(stream);
        self.reached = Instant::now();
        self.answered = false;
        Ok(())
    }

    fn frame(&mut self, flags: u32, message: &[u8]) {
        self.out.extend_from_slice(&((FRAME_HEADER + message.len()) as u32).to_le_bytes());
        self.out.extend_from_slice(&flags.to_le_bytes());
        self.out.extend_from_slice(message);
    }

    /// Until the mount ends.
    pub(super) fn run(&mut self) {
        while self.turn().is_ok() {}
        fuse::unmount(&self.at);
    }

    fn turn(&mut self) -> Result<(), Ended> {
        if self.server.is_none() && self.dial().is_err() && self.away.elapsed() >= self.patience {
            self.give_up();
        }
        let room = self.held < MOST_HELD && self.waiting.len() < MOST_WAITING;
        let watch = |fd: i32, events: i16| libc::pollfd { fd, events, revents: 0 };
        let server = self.server.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let writes = if self.sent < self.out.len() { libc::POLLOUT } else { 0 };
        let mut polled = [
            watch(self.device.as_raw_fd(), if room { libc::POLLIN } else { 0 }),
            watch(server, libc::POLLIN | writes),
        ];
        let timeout = if self.server.is_some() { -1 } else { DIAL_EVERY.as_millis() as i32 };
        // SAFETY: the array lives through the call and has that length.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
        if polled[0].revents & libc::POLLERR != 0 {
            return Err(Ended);
        }
        if polled[0].revents != 0 {
            self.take_requests()?;
        }
        // Also what has just been taken.
        if self.server.is_some() && self.exchange(polled[1].revents)?.is_err() {
            self.lose_server();
        }
        Ok(())
    }

    /// One that hangs up at once, as often as it is reached, is as good as none.
    fn lose_server(&mut self) {
        self.server = None;
        if self.answered || self.reached.elapsed() >= SERVED {
            self.away = Instant::now();
        } else if self.away.elapsed() >= self.patience {
            self.give_up();
        }
    }

    /// Takes what the kernel has, as far as there is room.
    fn take_requests(&mut self) -> Result<(), Ended> {
        while self.held < MOST_HELD && self.waiting.len() < MOST_WAITING {
            let (fd, room) = (self.device.as_raw_fd(), self.message.len());
            // SAFETY: the buffer has that many bytes.
            let count = unsafe { libc::read(fd, self.message.as_mut_ptr().cast(), room) };
            if count < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    // The caller has given up meanwhile.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    Some(libc::EAGAIN) => return Ok(()),
                    _ => return Err(Ended),
                }
            }
            let message = self.message[..count as usize].to_vec();
            self.take(message)?;
        }
        Ok(())
    }

    fn take(&mut self, message: Vec<u8>) -> Result<(), Ended> {
        let Some((opcode, unique)) = fuse::request_of(&message) else { return Ok(()) };
        match opcode {
            INIT => match fuse::welcome(&message) {
                Some(answer) => self.give(&answer),
                None => Err(Ended),
            },
            FORGET | BATCH_FORGET => {
                if self.server.is_some() && self.out.len() < MOST_OUT {
                    self.frame(0, &message);
                }
                Ok(())
            }
            INTERRUPT => {
                let Some(which) = fuse::interrupted_by(&message) else { return Ok(()) };
                if self.server.is_some() {
                    self.frame(0, &message);
                    return Ok(());
                }
                if self.forget(which) { self.give(&fuse::failure(which, libc::EINTR)) } else { Ok(()) }
            }
            _ if self.server.is_none() && self.away.elapsed() >= self.patience => {
                self.give(&fuse::failure(unique, libc::EIO))
            }
            _ => {
                if self.server.is_some() {
                    self.frame(0, &message);
                }
                self.held += message.len();
                if let Some(same) = self.waiting.insert(unique, message) {
                    self.held -= same.len();
                }
                Ok(())
            }
        }
    }

    fn forget(&mut self, unique: u64) -> bool {
        let Some(message) = self.waiting.remove(&unique) else { return false };
        self.held -= message.len();
        true
    }

    /// No server for too long: whoever waits gets an error.
    fn give_up(&mut self) {
        for unique in std::mem::take(&mut self.waiting).into_keys() {
            // A caller that takes no answer has gone.
            let _ = self.give(&fuse::failure(unique, libc::EIO));
        }
        self.held = 0;
    }

    /// Gives the kernel an answer. One that it does not understand becomes an error for the caller.
    fn give(&mut self, answer: &[u8]) -> Result<(), Ended> {
        // SAFETY: the buffer has that many bytes.
        let written = unsafe { libc::write(self.device.as_raw_fd(), answer.as_ptr().cast(), answer.len()) };
        if written >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENODEV) => Err(Ended),
            Some(libc::EINVAL) if answer.len() > ANSWER_HEADER => {
                let unique = u64::from_le_bytes(answer[8..16].try_into().map_err(|_| Ended)?);
                if unique == 0 { Ok(()) } else { self.give(&fuse::failure(unique, libc::EIO)) }
            }
            // The caller was interrupted, or a name that is to be forgotten is not known.
            _ => Ok(()),
        }
    }

    /// Sends what there is and takes what comes. The inner failure is the connection's.
    fn exchange(&mut self, events: i16) -> Result<io::Result<()>, Ended> {
        if let Err(error) = self.send() {
            return Ok(Err(error));
        }
        if events & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) == 0 {
            return Ok(Ok(()));
        }
        match self.receive() {
            Ok(()) => self.take_answers(),
            Err(error) => Ok(Err(error)),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(server) = &mut self.server else { return Ok(()) };
        while self.sent < self.out.len() {
            match server.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        if self.out.capacity() > 4 * MOST_MESSAGE {
            self.out = Vec::new();
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let Some(server) = &mut self.server else { return Ok(()) };
        while self.coming.len() < 4 * MOST_MESSAGE {
            let had = self.coming.len();
            self.coming.resize(had + READ_AT_ONCE, 0);
            let got = server.read(&mut self.coming[had..]);
            self.coming.truncate(had + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) if count < READ_AT_ONCE => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_answers(&mut self) -> Result<io::Result<()>, Ended> {
        let mut coming = std::mem::take(&mut self.coming);
        let mut at = 0;
        while let Some(header) = coming.get(at..at + ANSWER_HEADER) {
            let length = u32::from_le_bytes(header[..4].try_into().map_err(|_| Ended)?) as usize;
            let unique = u64::from_le_bytes(header[8..].try_into().map_err(|_| Ended)?);
            if !(ANSWER_HEADER..=MOST_MESSAGE).contains(&length) {
                return Ok(Err(ErrorKind::InvalidData.into()));
            }
            if unique == END {
                return Err(Ended);
            }
            let Some(answer) = coming.get(at..at + length) else { break };
            // 0 is a notification to the kernel, and no answer.
            if unique == 0 || self.forget(unique) {
                self.give(answer)?;
            }
            self.answered = true;
            at += length;
        }
        coming.drain(..at);
        if coming.is_empty() && coming.capacity() > 4 * MOST_MESSAGE {
            coming = Vec::new();
        }
        self.coming = coming;
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests;
