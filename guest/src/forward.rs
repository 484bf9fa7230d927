//! Connections to a port inside, and connections of programs inside that are carried to the server.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::egress::{Counted, sockets};
use crate::failure::Failure;
use crate::poller::{Poller, Token};
use crate::sys;
use crate::transport::connection::Connection;
use crate::transport::frame::MAX_DATA;
use crate::value::Value;

/// A connection to a port and its stream.
pub struct Forward {
    stream: u32,
    port: u16,
    fd: OwnedFd,
    connected: bool,
    /// 127.0.0.1 was refused and ::1 is being tried.
    second: bool,
    queue: VecDeque<(Vec<u8>, usize)>,
    they_ended: bool,
    shut: bool,
    eof: bool,
    watched: Option<(bool, bool)>,
    /// Present if a program inside has connected, and not the server.
    carried: Option<Counted>,
    /// It waits in the queue of ready streams.
    pub queued: bool,
}

/// What became of it.
#[derive(Debug)]
pub enum Outcome {
    /// It goes on.
    Open,
    /// Both sides are done.
    Done,
    /// The stream is to be reset.
    Failed(Failure),
}

fn dial(port: u16, v6: bool) -> Result<OwnedFd, i32> {
    // SAFETY: addresses live for the calls and have the sizes that are given.
    unsafe {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let fd = sys::owned(libc::socket(
            family,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        ))?;
        let one: libc::c_int = 1;
        libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const one).cast(), 4);
        let result = if v6 {
            let mut address: libc::sockaddr_in6 = std::mem::zeroed();
            address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            address.sin6_port = port.to_be();
            address.sin6_addr.s6_addr[15] = 1;
            libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
        } else {
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as libc::sa_family_t;
            address.sin_port = port.to_be();
            address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
        };
        if result < 0 && sys::errno() != libc::EINPROGRESS { Err(sys::errno()) } else { Ok(fd) }
    }
}

impl Forward {
    /// Begins to connect.
    pub fn open(stream: u32, request: &Value, poller: &Poller) -> Result<Forward, Failure> {
        let port = request.int("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let port =
            port.ok_or_else(|| Failure::new("invalid_argument", "A port is a number from 1 to 65535"))?;
        let (fd, second) = match dial(port, false) {
            Ok(fd) => (fd, false),
            Err(_) => (dial(port, true).map_err(|errno| refused(port, errno))?, true),
        };
        let mut forward = Forward {
            stream,
            port,
            fd,
            connected: false,
            second,
            queue: VecDeque::new(),
            they_ended: false,
            shut: false,
            eof: false,
            watched: None,
            carried: None,
            queued: false,
        };
        forward.watch(false, true, poller);
        Ok(forward)
    }

    /// A connection that a program inside has made. What it sends goes out before the server has connected.
    pub fn carry(stream: u32, port: u16, fd: OwnedFd, carried: Counted) -> Forward {
        Forward {
            stream,
            port,
            fd,
            connected: true,
            second: false,
            queue: VecDeque::new(),
            they_ended: false,
            shut: false,
            eof: false,
            watched: None,
            carried: Some(carried),
            queued: false,
        }
    }

    /// Whether a program inside has connected, and not the server.
    pub fn is_carried(&self) -> bool {
        self.carried.is_some()
    }

    /// Ends it before its time. A program inside sees a reset, not an end that looks like the end of the data.
    pub fn abort(self) {
        if self.carried.is_some() {
            sockets::reset(self.fd);
        }
    }

    fn watch(&mut self, read: bool, write: bool, poller: &Poller) {
        let (fd, token) = (self.fd.as_raw_fd(), Token::Forward(self.stream));
        match (self.watched, read || write) {
            (None, true) => {
                self.watched = poller.add(fd, token, read, write).is_ok().then_some((read, write))
            }
            (Some(_), false) => {
                poller.remove(fd);
                self.watched = None;
            }
            (Some(now), true) if now != (read, write) => {
                poller.set(fd, token, read, write);
                self.watched = Some((read, write));
            }
            _ => {}
        }
    }

    /// DATA from the server. True if the socket took all of it; the rest waits for a step.
    pub fn data(&mut self, bytes: &[u8], connection: &mut Connection) -> bool {
        let mut at = 0;
        while self.connected && self.queue.is_empty() && at < bytes.len() {
            match sys::write(self.fd.as_raw_fd(), &bytes[at..]) {
                Ok(Some(n)) => {
                    connection.taken_fast(self.stream, n);
                    at += n;
                }
                // The step meets an error again.
                Ok(None) | Err(_) => break,
            }
        }
        if at < bytes.len() {
            self.queue.push_back((bytes[at..].to_vec(), 0));
        }
        at == bytes.len()
    }

    /// END from the server: half-closes when all is written.
    pub fn ended(&mut self) {
        self.they_ended = true;
    }

    /// The socket may be read or written, or there is credit or data.
    pub fn step(
        &mut self,
        connection: &mut Connection,
        poller: &Poller,
        buffer: &mut [u8],
        room: bool,
    ) -> Outcome {
        if !self.connected {
            match self.finish_connecting(poller) {
                Ok(true) => {
                    connection.message(self.stream, &Value::map([]));
                }
                Ok(false) => return Outcome::Open,
                Err(failure) => return Outcome::Failed(failure),
            }
        }
        let full = match self.write(connection) {
            Ok(full) => full,
            Err(failure) => return Outcome::Failed(failure),
        };
        let mut readable = !self.eof && connection.may_send(self.stream);
        if readable && room {
            let mut length = buffer.len().min(MAX_DATA);
            if self.carried.is_some() {
                // The credit of a stream that the guest has opened may not be overdrawn.
                length = length.min(connection.credit(self.stream).max(0) as usize);
            }
            match sys::read(self.fd.as_raw_fd(), &mut buffer[..length]) {
                Ok(Some(0)) => {
                    self.eof = true;
                    connection.end(self.stream);
                }
                Ok(Some(n)) => connection.data(self.stream, 0, &buffer[..n]),
                Ok(None) => {}
                Err(errno) => {
                    return Outcome::Failed(Failure::from_errno(
                        errno,
                        &format!("read from port {}", self.port),
                    ));
                }
            }
            readable = !self.eof && connection.may_send(self.stream);
        }
        if self.eof && self.shut {
            return Outcome::Done;
        }
        self.watch(readable && room, full, poller);
        Outcome::Open
    }

    fn finish_connecting(&mut self, poller: &Poller) -> Result<bool, Failure> {
        let mut pollfd = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let mut error: libc::c_int = 0;
        let mut size = size_of_val(&error) as libc::socklen_t;
        // SAFETY: both live for the calls; the poll does not wait.
        unsafe {
            if libc::poll(&mut pollfd, 1, 0) <= 0 {
                return Ok(false);
            }
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast(),
                &mut size,
            );
        }
        if error == 0 {
            self.connected = true;
            return Ok(true);
        }
        if self.second {
            return Err(refused(self.port, error));
        }
        self.second = true;
        self.watch(false, false, poller);
        self.fd = dial(self.port, true).map_err(|_| refused(self.port, error))?;
        self.watch(false, true, poller);
        Ok(false)
    }

    /// True when the socket takes no more for now.
    fn write(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        while let Some((bytes, at)) = self.queue.front_mut() {
            match sys::write(self.fd.as_raw_fd(), &bytes[*at..]) {
                Ok(None) => return Ok(true),
                Ok(Some(n)) => {
                    connection.taken_fast(self.stream, n);
                    *at += n;
                    if *at >= bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Err(errno) => {
                    return Err(Failure::from_errno(errno, &format!("write to port {}", self.port)));
                }
            }
        }
        if self.they_ended && !self.shut {
            self.shut = true;
            // SAFETY: no pointers.
            unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_WR) };
        }
        Ok(false)
    }
}

fn refused(port: u16, errno: i32) -> Failure {
    Failure { code: "unavailable", ..Failure::from_errno(errno, &format!("connect to port {port}")) }
}
