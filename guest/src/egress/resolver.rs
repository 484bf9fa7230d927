//! The sockets of the name server: datagrams, and connections with a length before each message.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::dns::MAX_MESSAGE;
use super::sockets;
use crate::poller::{Poller, Token};
use crate::sys;
use crate::transport::sockets::accept;

/// The address of the name server, which `/etc/resolv.conf` names.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
const PORT: u16 = 53;
/// Connections at once. A further one replaces the oldest.
const MAX_CLIENTS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages that are read before other work gets a turn.
const PER_TURN: usize = 64;

/// Who is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A datagram's sender.
    Datagram(Ipv4Addr, u16),
    /// A connection, by its number.
    Client(u32),
}

struct Client {
    fd: OwnedFd,
    since: Instant,
    buffer: Vec<u8>,
}

/// The name server's sockets.
pub struct Resolver {
    datagrams: OwnedFd,
    listener: OwnedFd,
    clients: HashMap<u32, Client>,
    next: u32,
}

impl Resolver {
    /// Binds both sockets.
    pub fn open(poller: &Poller) -> Result<Resolver, i32> {
        let datagrams = sockets::bind_udp(ADDRESS, PORT)?;
        let listener = sockets::listen_tcp(ADDRESS, PORT)?;
        poller.add(datagrams.as_raw_fd(), Token::Questions, true, false)?;
        poller.add(listener.as_raw_fd(), Token::Askers, true, false)?;
        Ok(Resolver { datagrams, listener, clients: HashMap::new(), next: 0 })
    }

    /// The datagrams that have come.
    pub fn datagrams(&self) -> Vec<(Asker, Vec<u8>)> {
        // One byte more than is allowed, so that a longer message is not mistaken for its beginning.
        let mut buffer = [0u8; MAX_MESSAGE + 1];
        let mut found = Vec::new();
        while found.len() < PER_TURN {
            let Some((length, address, port)) = sockets::receive_from(&self.datagrams, &mut buffer) else {
                break;
            };
            found.push((Asker::Datagram(address, port), buffer[..length].to_vec()));
        }
        found
    }

    /// Accepts waiting connections.
    pub fn accept(&mut self, poller: &Poller) {
        for _ in 0..PER_TURN {
            let Ok(fd) = accept(&self.listener) else { return };
            if self.clients.len() >= MAX_CLIENTS {
                let oldest =
                    self.clients.iter().min_by_key(|(_, client)| client.since).map(|(number, _)| *number);
                oldest.and_then(|number| self.clients.remove(&number));
            }
            self.next = self.next.wrapping_add(1);
            if poller.add(fd.as_raw_fd(), Token::Asker(self.next), true, false).is_ok() {
                let client = Client { fd, since: Instant::now(), buffer: Vec::new() };
                self.clients.insert(self.next, client);
            }
        }
    }

    /// The whole messages that a connection has sent.
    pub fn messages(&mut self, number: u32) -> Vec<(Asker, Vec<u8>)> {
        let mut found = Vec::new();
        let Some(client) = self.clients.get_mut(&number) else { return found };
        let mut piece = [0u8; 2 * MAX_MESSAGE];
        let mut over = match sys::read(client.fd.as_raw_fd(), &mut piece) {
            Ok(None) => false,
            Ok(Some(0)) | Err(_) => true,
            Ok(Some(read)) => {
                client.buffer.extend_from_slice(&piece[..read]);
                false
            }
        };
        while let [high, low, rest @ ..] = &client.buffer[..] {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_MESSAGE {
                over = true;
                break;
            }
            let Some(message) = rest.get(..length) else { break };
            found.push((Asker::Client(number), message.to_vec()));
            client.buffer.drain(..2 + length);
        }
        if over {
            self.clients.remove(&number);
        }
        found
    }

    /// Sends an answer. One that cannot be sent at once is dropped, with its connection.
    pub fn answer(&mut self, asker: Asker, message: &[u8]) {
        match asker {
            Asker::Datagram(address, port) => sockets::send_to(&self.datagrams, message, address, port),
            Asker::Client(number) => {
                let Some(client) = self.clients.get(&number) else { return };
                let whole = [&(message.len() as u16).to_be_bytes(), message].concat();
                if !matches!(sys::write(client.fd.as_raw_fd(), &whole), Ok(Some(n)) if n == whole.len()) {
                    self.clients.remove(&number);
                }
            }
        }
    }

    /// Closes connections that are too old; true if some are left.
    pub fn sweep(&mut self) -> bool {
        self.clients.retain(|_, client| client.since.elapsed() < PATIENCE);
        !self.clients.is_empty()
    }
}
