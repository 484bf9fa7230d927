//! Egress: the names and connections of programs, on their way to the server.
//!
//! A program asks the name server (`resolver`, `dns`), which asks the server and answers with an address that
//! stands for the name (`names`). The program connects to that address. Its connection comes to the guest, by
//! a redirect (`redirect`, `nftables`) or because the guest listens there (`listeners`). The guest opens a
//! stream to the server that says which name and port was meant.
//!
//! The server decides what is reached. Nothing here is a wall.

pub mod datagrams;
pub mod dns;
pub mod listeners;
pub mod names;
mod netlink;
mod nftables;
pub mod redirect;
pub mod resolv_conf;
pub mod resolver;
pub mod sockets;

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use datagrams::Datagrams;
use dns::Question;
use listeners::Listeners;
use names::Names;
use redirect::Redirect;
use resolver::{Asker, Resolver};

use crate::poller::{Poller, Token};

/// Connections that may wait to be accepted.
pub const BACKLOG: i32 = 1024;
/// Carried connections at once.
const MAX_CARRIED: usize = 2048;
/// Lookups that wait for the server's answer at once.
const MAX_LOOKUPS: usize = 512;
/// Lookups that are sent at once, and how many more each second.
const LOOKUP_BURST: f64 = 2000.0;
const LOOKUPS_PER_SECOND: f64 = 500.0;
/// The server answers from memory.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long new connections wait for a connection to the server, such as while memory is captured.
const HOLD: Duration = Duration::from_secs(1);

const REDIRECTED: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const LISTENED: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 0);

/// A question that waits for the server's answer.
pub struct Lookup {
    /// The question.
    pub question: Question,
    /// Who asked it.
    pub asker: Asker,
    since: Instant,
}

/// Counts a carried connection while it lives.
pub struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// The state of egress.
pub struct Egress {
    /// Where connections are redirected to, if they are.
    pub redirect: Option<Redirect>,
    /// Which address is mapped to which name.
    pub names: Names,
    /// The name server, while egress is on.
    pub resolver: Option<Resolver>,
    /// The listeners on the addresses of names.
    pub listeners: Listeners,
    /// The sockets that take datagrams for names.
    pub datagrams: Datagrams,
    /// Questions that wait, by their stream.
    pub lookups: HashMap<u32, Lookup>,
    /// New connections wait until then for a connection to the server.
    pub held_until: Option<Instant>,
    /// A timer is set.
    pub armed: bool,
    on: bool,
    watched: bool,
    carried: Rc<Cell<usize>>,
    allowance: f64,
    allowed_at: Instant,
}

impl Egress {
    /// Off, until the server says otherwise.
    pub fn new(redirect: Option<Redirect>) -> Egress {
        let base = if redirect.is_some() { REDIRECTED } else { LISTENED };
        Egress {
            redirect,
            names: Names::new(base),
            resolver: None,
            listeners: Listeners::default(),
            datagrams: Datagrams::default(),
            lookups: HashMap::new(),
            held_until: None,
            armed: false,
            on: false,
            watched: false,
            carried: Rc::default(),
            allowance: LOOKUP_BURST,
            allowed_at: Instant::now(),
        }
    }

    /// Whether programs reach the server.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// What the guest can do, for its HELLO.
    pub fn features(&self) -> &'static [&'static str] {
        if self.redirect.is_some() { &["egress", "egress-any"] } else { &["egress"] }
    }

    /// Begins or stops to answer names and to accept connections.
    pub fn switch(&mut self, on: bool, poller: &Poller) {
        if self.on == on {
            return;
        }
        self.on = on;
        self.listeners = Listeners::default();
        self.datagrams = Datagrams::default();
        // If the port is taken, by a name server of the sandbox's own, that one has to do.
        self.resolver = if on { Resolver::open(poller).ok() } else { None };
        if !on {
            self.pause(true, poller);
        }
        if let Some(redirect) = &self.redirect {
            let _ = redirect::listen(redirect, on);
        }
        if on {
            self.pause(false, poller);
        }
    }

    /// Leaves new connections waiting, or goes on accepting them.
    pub fn pause(&mut self, paused: bool, poller: &Poller) {
        self.listeners.pause(paused, poller);
        let watch = self.on && !paused;
        if let Some(redirect) = self.redirect.as_ref().filter(|_| self.watched != watch) {
            if watch {
                let _ = poller.add(redirect.fd.as_raw_fd(), Token::Redirected, true, false);
            } else {
                poller.remove(redirect.fd.as_raw_fd());
            }
        }
        self.watched = watch;
    }

    /// The connection to the server is gone: new connections wait for the next one, for a while.
    pub fn hold(&mut self, poller: &Poller) {
        if self.on {
            self.held_until = Some(Instant::now() + HOLD);
            self.pause(true, poller);
        }
    }

    /// There is a connection to the server again, or there was none for too long.
    pub fn release(&mut self, poller: &Poller) {
        if self.held_until.take().is_some() {
            self.pause(false, poller);
        }
    }

    /// Whether one more lookup may be sent now.
    pub fn may_look_up(&mut self) -> bool {
        let now = Instant::now();
        let gained = now.duration_since(self.allowed_at).as_secs_f64() * LOOKUPS_PER_SECOND;
        self.allowance = (self.allowance + gained).min(LOOKUP_BURST);
        self.allowed_at = now;
        if self.allowance < 1.0 || self.lookups.len() >= MAX_LOOKUPS {
            return false;
        }
        self.allowance -= 1.0;
        true
    }

    /// Remembers who waits for the answer on a stream.
    pub fn wait(&mut self, stream: u32, question: Question, asker: Asker) {
        self.lookups.insert(stream, Lookup { question, asker, since: Instant::now() });
    }

    /// The streams whose answer has not come in time.
    pub fn late(&self) -> Vec<u32> {
        let late = |lookup: &Lookup| lookup.since.elapsed() >= LOOKUP_TIMEOUT;
        self.lookups.iter().filter(|(_, lookup)| late(lookup)).map(|(stream, _)| *stream).collect()
    }

    /// Counts one more carried connection, unless there are too many.
    pub fn count(&self) -> Option<Counted> {
        let now = self.carried.get();
        if now >= MAX_CARRIED {
            return None;
        }
        self.carried.set(now + 1);
        Some(Counted(self.carried.clone()))
    }

    /// Whether a listening port is the guest's own, not one of the sandbox.
    pub fn owns(&self, port: u16, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        self.names.contains(address)
            || (address == resolver::ADDRESS && port == 53)
            || (self.redirect.is_some() && port == redirect::PORT && address == Ipv4Addr::LOCALHOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_limited() {
        let mut egress = Egress::new(None);
        let allowed = (0..5000).filter(|_| egress.may_look_up()).count();
        assert!((2000..2100).contains(&allowed), "{allowed}");
    }

    #[test]
    fn carried_connections_are_counted() {
        let egress = Egress::new(None);
        let held: Vec<Counted> = (0..MAX_CARRIED).map(|_| egress.count().unwrap()).collect();
        assert!(egress.count().is_none());
        drop(held);
        assert!(egress.count().is_some());
        assert_eq!(egress.carried.get(), 0);
    }
}
