//! Datagrams of programs: sockets at the addresses of names, and the flows that come from them.
//!
//! A socket comes with a lookup whose answer has ports for UDP, and goes when it was not used for a while.
//! Everywhere else a program's datagram meets no socket, and the kernel refuses it at once.
//! A *flow* is what one socket of a program sends to one of ours; each is a stream to the server.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::sockets;
use crate::poller::{Poller, Token};

/// Longer ones are dropped.
pub const MAX_DATAGRAM: usize = 16_384;
/// The length before each datagram on a stream.
pub const HEAD: usize = 2;
/// Sockets at once; the one that was not used for longest is closed for a new one.
const MAX_SOCKETS: usize = 128;
/// Flows at once; the server has room for some more. The one that was idle for longest ends for a new one.
const MAX_FLOWS: usize = 192;
/// Longer than an answer of the name server may be kept.
const IDLE: Duration = Duration::from_secs(60);
/// The server ends idle flows sooner.
const IDLE_FLOW: Duration = Duration::from_secs(45);

/// A program's socket: its address and port.
pub type Program = (Ipv4Addr, u16);

struct Socket {
    fd: OwnedFd,
    address: Ipv4Addr,
    port: u16,
    used: Instant,
}

struct Flow {
    socket: u32,
    program: Program,
    used: Instant,
}

/// All of them.
#[derive(Default)]
pub struct Datagrams {
    sockets: HashMap<u32, Socket>,
    by_address: HashMap<(Ipv4Addr, u16), u32>,
    flows: HashMap<u32, Flow>,
    by_program: HashMap<(u32, Program), u32>,
    next: u32,
}

impl Datagrams {
    /// Takes datagrams for these ports of an address. Answers the flows that end for it.
    #[must_use]
    pub fn listen(&mut self, address: Ipv4Addr, ports: &[u16], poller: &Poller) -> Vec<u32> {
        let mut ended = Vec::new();
        for port in ports {
            if let Some(number) = self.by_address.get(&(address, *port)) {
                if let Some(socket) = self.sockets.get_mut(number) {
                    socket.used = Instant::now();
                }
                continue;
            }
            while self.sockets.len() >= MAX_SOCKETS {
                let oldest = self.sockets.iter().min_by_key(|(_, one)| one.used).map(|(number, _)| *number);
                let Some(oldest) = oldest else { break };
                ended.extend(self.close(oldest));
            }
            let Ok(fd) = sockets::bind_udp(address, *port) else { continue };
            self.next = self.next.wrapping_add(1);
            if poller.add(fd.as_raw_fd(), Token::Datagrams(self.next), true, false).is_ok() {
                self.by_address.insert((address, *port), self.next);
                self.sockets.insert(self.next, Socket { fd, address, port: *port, used: Instant::now() });
            }
        }
        ended
    }

    /// The next datagram at a socket, its length and sender, if there is one.
    pub fn receive(&mut self, number: u32, buffer: &mut [u8]) -> Option<(usize, Program)> {
        let socket = self.sockets.get_mut(&number)?;
        let (length, address, port) = sockets::receive_from(&socket.fd, buffer)?;
        socket.used = Instant::now();
        Some((length, (address, port)))
    }

    /// What the datagrams at a socket are for.
    pub fn target(&self, number: u32) -> Option<(Ipv4Addr, u16)> {
        self.sockets.get(&number).map(|socket| (socket.address, socket.port))
    }

    /// The stream of a flow, which is used now.
    pub fn stream_of(&mut self, number: u32, program: Program) -> Option<u32> {
        let stream = *self.by_program.get(&(number, program))?;
        self.flows.get_mut(&stream)?.used = Instant::now();
        Some(stream)
    }

    /// A new flow. Answers the one that ends for it.
    #[must_use]
    pub fn begin(&mut self, stream: u32, number: u32, program: Program) -> Option<u32> {
        let oldest = if self.flows.len() < MAX_FLOWS {
            None
        } else {
            self.flows.iter().min_by_key(|(_, flow)| flow.used).map(|(stream, _)| *stream)
        };
        oldest.inspect(|stream| self.end(*stream));
        self.flows.insert(stream, Flow { socket: number, program, used: Instant::now() });
        self.by_program.insert((number, program), stream);
        oldest
    }

    /// Hands a datagram to the program of a flow. One that cannot be sent now is lost.
    pub fn hand(&mut self, stream: u32, datagram: &[u8]) {
        let Some(flow) = self.flows.get_mut(&stream) else { return };
        let Some(socket) = self.sockets.get_mut(&flow.socket) else { return };
        flow.used = Instant::now();
        socket.used = flow.used;
        sockets::send_to(&socket.fd, datagram, flow.program.0, flow.program.1);
    }

    /// A flow is over.
    pub fn end(&mut self, stream: u32) {
        if let Some(flow) = self.flows.remove(&stream) {
            self.by_program.remove(&(flow.socket, flow.program));
        }
    }

    /// The server refuses a flow: its target takes no more, so that programs see that. Answers the flows that
    /// end with it.
    #[must_use]
    pub fn refuse(&mut self, stream: u32) -> Vec<u32> {
        let Some(flow) = self.flows.get(&stream) else { return Vec::new() };
        let number = flow.socket;
        self.end(stream);
        self.close(number)
    }

    /// The connection to the server is gone, and all flows with it.
    pub fn forget(&mut self) {
        self.flows.clear();
        self.by_program.clear();
    }

    /// Closes what is not used. Answers the flows that end.
    #[must_use]
    pub fn sweep(&mut self) -> Vec<u32> {
        let idle = |used: Instant, most: Duration| used.elapsed() > most;
        let mut ended: Vec<u32> =
            self.flows.iter().filter(|(_, flow)| idle(flow.used, IDLE_FLOW)).map(|(one, _)| *one).collect();
        for stream in &ended {
            self.end(*stream);
        }
        let unused: Vec<u32> =
            self.sockets.iter().filter(|(_, one)| idle(one.used, IDLE)).map(|(number, _)| *number).collect();
        for number in unused {
            ended.extend(self.close(number));
        }
        ended
    }

    /// Whether there is nothing to sweep.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    fn close(&mut self, number: u32) -> Vec<u32> {
        if let Some(socket) = self.sockets.remove(&number) {
            self.by_address.remove(&(socket.address, socket.port));
        }
        let ended: Vec<u32> =
            self.flows.iter().filter(|(_, flow)| flow.socket == number).map(|(stream, _)| *stream).collect();
        for stream in &ended {
            self.end(*stream);
        }
        ended
    }
}

/// Finds datagrams in the bytes of a stream, in whatever pieces they come.
#[derive(Default)]
pub struct Unframer {
    rest: Vec<u8>,
}

impl Unframer {
    /// Calls `each` with every datagram that is whole now. False if one is too long: the stream is broken.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> bool {
        self.rest.extend_from_slice(bytes);
        let mut at = 0;
        while let [high, low, after @ ..] = &self.rest[at..] {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_DATAGRAM {
                return false;
            }
            let Some(datagram) = after.get(..length) else { break };
            each(datagram);
            at += HEAD + length;
        }
        self.rest.drain(..at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Random;
    use std::net::UdpSocket;

    #[test]
    fn datagrams_come_and_go_between_a_program_and_its_flow() {
        let poller = Poller::new().unwrap();
        let mut datagrams = Datagrams::default();
        let address = Ipv4Addr::new(127, 72, 3, 4);
        assert!(datagrams.listen(address, &[7053, 7054], &poller).is_empty());
        assert!(datagrams.listen(address, &[7053], &poller).is_empty());
        assert_eq!(datagrams.sockets.len(), 2);
        let program = UdpSocket::bind("127.0.0.1:0").unwrap();
        program.connect((address, 7053)).unwrap();
        program.send(b"hello").unwrap();
        let mut ready = Vec::new();
        poller.wait(1000, &mut ready);
        let Token::Datagrams(number) = ready[0].token else { panic!("{ready:?}") };
        let mut buffer = [0; 64];
        let (length, from) = datagrams.receive(number, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"hello");
        assert_eq!(datagrams.target(number), Some((address, 7053)));
        assert_eq!(datagrams.stream_of(number, from), None);
        assert_eq!(datagrams.begin(8, number, from), None);
        assert_eq!(datagrams.stream_of(number, from), Some(8));
        datagrams.hand(8, b"back");
        assert_eq!(program.recv(&mut buffer).unwrap(), 4);
        // What is refused is refused by the kernel from then on.
        assert!(datagrams.refuse(8).is_empty());
        program.send(b"again").unwrap();
        assert_eq!(program.recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn their_number_is_bounded() {
        let poller = Poller::new().unwrap();
        let mut datagrams = Datagrams::default();
        for n in 0..200u32 {
            let _ = datagrams.listen(Ipv4Addr::from(0x7f49_0001 + n), &[7055], &poller);
        }
        assert_eq!(datagrams.sockets.len(), MAX_SOCKETS);
        let number = *datagrams.sockets.keys().next().unwrap();
        let ended: Vec<u32> = (0..500u16)
            .filter_map(|port| datagrams.begin(u32::from(port), number, (Ipv4Addr::LOCALHOST, port)))
            .collect();
        assert_eq!(datagrams.flows.len(), MAX_FLOWS);
        assert_eq!(datagrams.by_program.len(), MAX_FLOWS);
        assert_eq!(ended.len(), 500 - MAX_FLOWS);
        assert_eq!(datagrams.close(number).len(), MAX_FLOWS);
        assert!(datagrams.by_program.is_empty());
    }

    #[test]
    fn datagrams_are_found_in_whatever_pieces_they_come() {
        let mut random = Random::new(3);
        for _ in 0..2000 {
            let sent: Vec<Vec<u8>> =
                (0..random.below(8)).map(|n| vec![n as u8; random.below(300) as usize]).collect();
            let mut stream = Vec::new();
            for one in &sent {
                stream.extend((one.len() as u16).to_be_bytes());
                stream.extend(one);
            }
            let mut unframer = Unframer::default();
            let mut found = Vec::new();
            while !stream.is_empty() {
                let length = (1 + random.below(400) as usize).min(stream.len());
                let piece: Vec<u8> = stream.drain(..length).collect();
                assert!(unframer.push(&piece, |one| found.push(one.to_vec())));
            }
            assert_eq!(found, sent);
        }
        assert!(!Unframer::default().push(&[0xff, 0xff], |_| panic!("it is too long")));
    }
}
