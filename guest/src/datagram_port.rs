//! Datagrams from outside to a port inside, and the answers: one socket for each client of the server.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::egress::datagrams::{HEAD, MAX_DATAGRAM, Unframer};
use crate::failure::Failure;
use crate::poller::{Poller, Token};
use crate::sys;
use crate::transport::connection::Connection;
use crate::value::Value;

/// Answers that are read before other streams get a turn.
const PER_TURN: usize = 32;

/// A socket that sends to a port of the sandbox, and its stream.
pub struct DatagramPort {
    stream: u32,
    fd: OwnedFd,
    unframer: Unframer,
    /// It waits in the queue of ready streams.
    pub queued: bool,
}

impl DatagramPort {
    /// Nothing has to listen there yet: a datagram to nobody is lost.
    pub fn open(stream: u32, request: &Value, poller: &Poller) -> Result<DatagramPort, Failure> {
        let port = request.int("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let port =
            port.ok_or_else(|| Failure::new("invalid_argument", "A port is a number from 1 to 65535"))?;
        let failed = |errno| Failure::from_errno(errno, &format!("send to port {port}"));
        let fd = dial(port).map_err(failed)?;
        poller.add(fd.as_raw_fd(), Token::Forward(stream), true, false).map_err(failed)?;
        Ok(DatagramPort { stream, fd, unframer: Unframer::default(), queued: false })
    }

    /// DATA from the server. False if it is broken.
    pub fn data(&mut self, bytes: &[u8], connection: &mut Connection) -> bool {
        connection.taken(self.stream, bytes.len());
        let fd = self.fd.as_raw_fd();
        self.unframer.push(bytes, |datagram| {
            // That an earlier one reached nobody is reported instead of the sending of this one.
            if send(fd, datagram) == Err(libc::ECONNREFUSED) {
                let _ = send(fd, datagram);
            }
        })
    }

    /// Reads answers. One that the server has given no credit for is lost.
    pub fn step(&mut self, connection: &mut Connection, buffer: &mut [u8]) {
        for _ in 0..PER_TURN {
            let room = HEAD + MAX_DATAGRAM + 1;
            let length = match receive(self.fd.as_raw_fd(), &mut buffer[HEAD..room]) {
                Ok(length) => length,
                Err(libc::ECONNREFUSED) => continue,
                Err(_) => return,
            };
            let framed = HEAD + length;
            if length > MAX_DATAGRAM || connection.credit(self.stream) < framed as i64 {
                continue;
            }
            buffer[..HEAD].copy_from_slice(&(length as u16).to_be_bytes());
            connection.data(self.stream, 0, &buffer[..framed]);
        }
    }
}

fn dial(port: u16) -> Result<OwnedFd, i32> {
    // SAFETY: the address lives for the call and has the size that is given; all zeros is an address.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = sys::owned(libc::socket(libc::AF_INET, kind, 0))?;
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let size = size_of_val(&address) as u32;
        if libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size) < 0 {
            return Err(sys::errno());
        }
        Ok(fd)
    }
}

fn send(fd: i32, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: the bytes live for the call.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(sys::errno()) } else { Ok(()) }
}

fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: the buffer lives for the call.
    let read = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    if read < 0 { Err(sys::errno()) } else { Ok(read as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn datagrams_arrive_whole_and_a_port_without_listener_loses_them() {
        let poller = Poller::new().unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let request = Value::map([("port", i64::from(port).into())]);
        let mut forward = DatagramPort::open(8, &request, &poller).unwrap();
        let mut connection = Connection::default();
        // In two pieces, and two in one.
        assert!(forward.data(&[0, 3, b'o'], &mut connection));
        assert!(forward.data(&[b'n', b'e', 0, 0, 0, 1, b'x'], &mut connection));
        let mut buffer = [0; 64];
        let sizes: Vec<usize> = (0..3).map(|_| server.recv_from(&mut buffer).unwrap().0).collect();
        assert_eq!(sizes, [3, 0, 1]);
        drop(server);
        assert!(forward.data(&[0, 1, b'a', 0, 1, b'b', 0, 1, b'c'], &mut connection));
        forward.step(&mut connection, &mut [0; HEAD + MAX_DATAGRAM + 1]);
        let again = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        assert!(forward.data(&[0, 1, b'd'], &mut connection));
        assert_eq!(again.recv_from(&mut buffer).unwrap().0, 1);
        assert!(!forward.data(&[0xff, 0xff], &mut connection));
        assert!(DatagramPort::open(8, &Value::map([("port", 0.into())]), &poller).is_err());
    }
}
