//! Connections to a port inside, and connections of programs inside that are carried to the server.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

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
    /// It goes on, and more is read before anything is written: fewer calls of the kernel, where they are
    /// dear.
    More,
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

    /// Ends it before its time. A program inside sees a reset, not an end that looks like the end of the
    /// data.
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

    /// Several pieces of DATA, in one call of the kernel as far as it takes them: under gVisor calls are
    /// dear.
    pub fn data_run(&mut self, pieces: &[Cow<'_, [u8]>], connection: &mut Connection) -> bool {
        let mut gone = 0;
        if self.connected && self.queue.is_empty() {
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            // What fails is met again with the rest.
            if let Ok(Some(n)) = sys::write_vectored(self.fd.as_raw_fd(), &slices) {
                connection.taken_fast(self.stream, n);
                gone = n;
            }
        }
        let mut all = true;
        for piece in pieces {
            let skipped = gone.min(piece.len());
            gone -= skipped;
            if skipped < piece.len() {
                all &= self.data(&piece[skipped..], connection);
            }
        }
        all
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
        let mut more = false;
        if readable && room {
            let length = if self.carried.is_some() {
                // The credit of a stream that the guest has opened may not be overdrawn.
                let longest = if calls_are_dear() { buffer.len() } else { buffer.len().min(MAX_DATA) };
                longest.min(connection.credit(self.stream).max(0) as usize)
            } else {
                buffer.len().min(MAX_DATA)
            };
            match sys::read(self.fd.as_raw_fd(), &mut buffer[..length]) {
                Ok(Some(0)) => {
                    self.eof = true;
                    connection.end(self.stream);
                }
                Ok(Some(n)) => {
                    more = n == length && calls_are_dear();
                    buffer[..n].chunks(MAX_DATA).for_each(|piece| connection.data(self.stream, 0, piece))
                }
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
        if more && readable { Outcome::More } else { Outcome::Open }
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

/// Whether the kernel is gVisor's, where few long reads take less time than many short ones; elsewhere it is
/// the other way round. Older versions call themselves 4.4.0, as no distribution's kernel does; a wrong guess
/// costs little.
fn calls_are_dear() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // SAFETY: all zeros is a value, it lives for the call, and its fields end with a zero byte.
        unsafe {
            let mut names: libc::utsname = std::mem::zeroed();
            let known = libc::uname(&mut names) == 0;
            let release = CStr::from_ptr(names.release.as_ptr()).to_bytes();
            known && (release == b"4.4.0" || release.ends_with(b"-gvisor"))
        }
    })
}

fn refused(port: u16, errno: i32) -> Failure {
    Failure { code: "unavailable", ..Failure::from_errno(errno, &format!("connect to port {port}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Egress;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn pieces_that_go_on_together_arrive_in_order_also_when_the_socket_is_full() {
        let (ours, mut program) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let counted = Egress::new(None).count().unwrap();
        let mut forward = Forward::carry(8, 1, OwnedFd::from(ours), counted);
        let (mut connection, poller) = (Connection::default(), Poller::new().unwrap());
        let sent: Vec<u8> = (0..2_000_000u32).map(|n| (n / 3) as u8).collect();
        let pieces: Vec<Cow<'_, [u8]>> = sent.chunks(70_001).map(Cow::Borrowed).collect();
        assert!(forward.data_run(&pieces[..2], &mut connection));
        assert!(!forward.data_run(&pieces[2..], &mut connection));
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; 2_000_000];
            program.read_exact(&mut got).unwrap();
            got
        });
        let mut buffer = vec![0; 4096];
        while !reading.is_finished() {
            assert!(matches!(forward.step(&mut connection, &poller, &mut buffer, true), Outcome::Open));
            std::thread::yield_now();
        }
        assert!(reading.join().unwrap() == sent);
    }
}
