//! Listeners on the addresses of names, where connections cannot be redirected.
//!
//! A listener comes with a lookup and goes when it was not used for a while, because a program that wants to
//! listen on the same port of every address cannot do so meanwhile.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::sockets;
use crate::poller::{Poller, Token};

/// Listeners at once; the one that was not used for longest is closed for a new one.
const MAX_LISTENERS: usize = 512;
/// Longer than an answer of the name server may be kept.
const IDLE: Duration = Duration::from_secs(60);

struct Listener {
    fd: OwnedFd,
    address: Ipv4Addr,
    port: u16,
    used: Instant,
}

/// All of them.
#[derive(Default)]
pub struct Listeners {
    by_number: HashMap<u32, Listener>,
    by_address: HashMap<(Ipv4Addr, u16), u32>,
    next: u32,
    paused: bool,
}

impl Listeners {
    /// Listens on these ports of an address, as far as that is possible, and where it does already goes on.
    pub fn listen(&mut self, address: Ipv4Addr, ports: &[u16], poller: &Poller) {
        for port in ports {
            if let Some(number) = self.by_address.get(&(address, *port)) {
                if let Some(listener) = self.by_number.get_mut(number) {
                    listener.used = Instant::now();
                }
                continue;
            }
            while self.by_number.len() >= MAX_LISTENERS {
                let oldest = self.by_number.iter().min_by_key(|(_, one)| one.used).map(|(number, _)| *number);
                let Some(oldest) = oldest else { break };
                self.close(oldest);
            }
            let Ok(fd) = sockets::listen_tcp(address, *port) else { continue };
            self.next = self.next.wrapping_add(1);
            if !self.paused && poller.add(fd.as_raw_fd(), Token::Named(self.next), true, false).is_err() {
                continue;
            }
            self.by_address.insert((address, *port), self.next);
            self.by_number.insert(self.next, Listener { fd, address, port: *port, used: Instant::now() });
        }
    }

    /// The listener with that number, which is used now.
    pub fn used(&mut self, number: u32) -> Option<(&OwnedFd, Ipv4Addr, u16)> {
        let listener = self.by_number.get_mut(&number)?;
        listener.used = Instant::now();
        Some((&listener.fd, listener.address, listener.port))
    }

    /// Leaves connections waiting, or goes on accepting them.
    pub fn pause(&mut self, paused: bool, poller: &Poller) {
        if self.paused == paused {
            return;
        }
        self.paused = paused;
        for (number, listener) in &self.by_number {
            if paused {
                poller.remove(listener.fd.as_raw_fd());
            } else {
                let _ = poller.add(listener.fd.as_raw_fd(), Token::Named(*number), true, false);
            }
        }
    }

    /// Closes those that are not used; true if some are left.
    pub fn sweep(&mut self) -> bool {
        let idle: Vec<u32> = self
            .by_number
            .iter()
            .filter(|(_, one)| one.used.elapsed() > IDLE)
            .map(|(number, _)| *number)
            .collect();
        idle.into_iter().for_each(|number| self.close(number));
        !self.by_number.is_empty()
    }

    fn close(&mut self, number: u32) {
        if let Some(listener) = self.by_number.remove(&number) {
            self.by_address.remove(&(listener.address, listener.port));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_listener_takes_connections_to_its_address_alone() {
        let poller = Poller::new().unwrap();
        let mut listeners = Listeners::default();
        let address = Ipv4Addr::new(127, 71, 3, 4);
        listeners.listen(address, &[7443, 7080], &poller);
        listeners.listen(address, &[7443], &poller);
        assert_eq!(listeners.by_number.len(), 2);
        let mut client = TcpStream::connect((address, 7443)).unwrap();
        let mut ready = Vec::new();
        poller.wait(1000, &mut ready);
        let Token::Named(number) = ready[0].token else { panic!("{ready:?}") };
        let (fd, at, port) = listeners.used(number).unwrap();
        assert_eq!((at, port), (address, 7443));
        let mut accepted: TcpStream = crate::transport::sockets::accept(fd).unwrap().into();
        accepted.set_nonblocking(false).unwrap();
        client.write_all(b"x").unwrap();
        let mut byte = [0];
        accepted.read_exact(&mut byte).unwrap();
        assert!(TcpStream::connect((Ipv4Addr::new(127, 71, 3, 5), 7443)).is_err());
        // The port of another address stays free.
        assert!(TcpListener::bind((Ipv4Addr::new(127, 71, 3, 5), 7443)).is_ok());
    }

    #[test]
    fn their_number_is_bounded() {
        let poller = Poller::new().unwrap();
        let mut listeners = Listeners::default();
        for n in 0..600u32 {
            listeners.listen(Ipv4Addr::from(0x7f48_0001 + n), &[7444], &poller);
        }
        assert_eq!(listeners.by_number.len(), MAX_LISTENERS);
        assert_eq!(listeners.by_address.len(), MAX_LISTENERS);
        assert!(listeners.sweep());
    }
}
