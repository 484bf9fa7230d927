//! epoll, with a token that tells which part of the guest a descriptor belongs to.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys;

/// What a ready descriptor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The connection to the server.
    Link,
    /// The socket that `serve` listens on.
    Listener,
    /// The TCP port of `listen`.
    Door,
    /// A client of that port that has not proven yet that it has the key.
    Caller(u32),
    /// A child has ended, or the guest was asked to stop.
    Signals,
    /// A thread or a supervisor has a result.
    Poke,
    /// A descriptor of the command with this key: 0 stdin, 1 stdout, 2 stderr, 3 pty.
    Command(u64, u8),
    /// Output after the end of a command, which is discarded.
    Leftover(RawFd),
    /// A connection to a port, or a carried one, by its stream.
    Forward(u32),
    /// The datagrams of the name server.
    Questions,
    /// The connections to the name server.
    Askers,
    /// One of them.
    Asker(u32),
    /// The socket that connections are redirected to.
    Redirected,
    /// A listener on the address of a name.
    Named(u32),
    /// A socket that takes datagrams for a name.
    Datagrams(u32),
}

impl Token {
    fn pack(self) -> u64 {
        match self {
            Token::Link => 0,
            Token::Listener => 1,
            Token::Signals => 2,
            Token::Poke => 3,
            Token::Door => 4,
            Token::Questions => 5,
            Token::Askers => 6,
            Token::Redirected => 7,
            Token::Command(key, part) => (1 << 60) | (key << 3) | u64::from(part),
            Token::Leftover(fd) => (2 << 60) | fd as u64,
            Token::Forward(stream) => (3 << 60) | u64::from(stream),
            Token::Caller(number) => (4 << 60) | u64::from(number),
            Token::Asker(number) => (5 << 60) | u64::from(number),
            Token::Named(number) => (6 << 60) | u64::from(number),
            Token::Datagrams(number) => (7 << 60) | u64::from(number),
        }
    }

    fn unpack(word: u64) -> Token {
        let rest = word & ((1 << 60) - 1);
        match (word >> 60, rest) {
            (0, 0) => Token::Link,
            (0, 1) => Token::Listener,
            (0, 2) => Token::Signals,
            (0, 4) => Token::Door,
            (0, 5) => Token::Questions,
            (0, 6) => Token::Askers,
            (0, 7) => Token::Redirected,
            (1, _) => Token::Command(rest >> 3, (rest & 7) as u8),
            (2, _) => Token::Leftover(rest as RawFd),
            (3, _) => Token::Forward(rest as u32),
            (4, _) => Token::Caller(rest as u32),
            (5, _) => Token::Asker(rest as u32),
            (6, _) => Token::Named(rest as u32),
            (7, _) => Token::Datagrams(rest as u32),
            _ => Token::Poke,
        }
    }
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The token that the descriptor was added with.
    pub token: Token,
    /// Reading will not block (or there is an error to be read).
    pub readable: bool,
    /// Writing will not block (or there is an error to be met).
    pub writable: bool,
}

/// An epoll set.
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty set.
    pub fn new() -> Result<Poller, i32> {
        // SAFETY: no pointers.
        sys::owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(|epoll| Poller { epoll })
    }

    /// Watches a descriptor, level-triggered. Closing it ends the watching.
    pub fn add(&self, fd: RawFd, token: Token, read: bool, write: bool) -> Result<(), i32> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, read, write)
    }

    /// Changes what is watched for.
    pub fn set(&self, fd: RawFd, token: Token, read: bool, write: bool) {
        let _ = self.control(libc::EPOLL_CTL_MOD, fd, token, read, write);
    }

    /// Stops watching: needed where neither reading nor writing is wanted, since hang-ups are always
    /// reported.
    pub fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, Token::Poke, false, false);
    }

    fn control(&self, op: i32, fd: RawFd, token: Token, read: bool, write: bool) -> Result<(), i32> {
        let mut events = 0;
        if read {
            events |= libc::EPOLLIN as u32;
        }
        if write {
            events |= libc::EPOLLOUT as u32;
        }
        let mut event = libc::epoll_event { events, u64: token.pack() };
        // SAFETY: the event lives for the call.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &mut event) } < 0 {
            Err(sys::errno())
        } else {
            Ok(())
        }
    }

    /// Sleeps until something is ready or the time is over (-1: however long it takes).
    pub fn wait(&self, timeout_ms: i32, ready: &mut Vec<Ready>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for 64 events.
        let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 64, timeout_ms) };
        ready.clear();
        for event in events.iter().take(n.max(0) as usize) {
            let bits = event.events;
            let failed = bits & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0;
            ready.push(Ready {
                token: Token::unpack(event.u64),
                readable: failed || bits & libc::EPOLLIN as u32 != 0,
                writable: failed || bits & libc::EPOLLOUT as u32 != 0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        for token in [
            Token::Link,
            Token::Listener,
            Token::Signals,
            Token::Poke,
            Token::Command(u64::MAX >> 8, 3),
            Token::Leftover(77),
            Token::Forward(u32::MAX),
            Token::Door,
            Token::Caller(u32::MAX),
            Token::Questions,
            Token::Askers,
            Token::Asker(u32::MAX),
            Token::Redirected,
            Token::Named(u32::MAX),
            Token::Datagrams(u32::MAX),
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
