//! The system calls of IPv4 sockets.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

fn to_sockaddr(address: Ipv4Addr, port: u16) -> libc::sockaddr_in {
    // SAFETY: all zeros is an address.
    let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    raw.sin_family = libc::AF_INET as libc::sa_family_t;
    raw.sin_port = port.to_be();
    raw.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
    raw
}

fn from_sockaddr(raw: &libc::sockaddr_in) -> Option<(Ipv4Addr, u16)> {
    (i32::from(raw.sin_family) == libc::AF_INET)
        .then(|| (Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes()), u16::from_be(raw.sin_port)))
}

/// Sets an option that is a number.
pub fn set(fd: &OwnedFd, level: i32, option: i32, value: i32) -> Result<(), i32> {
    // SAFETY: the value lives for the call.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), 4) };
    if result < 0 { Err(sys::errno()) } else { Ok(()) }
}

fn bind(kind: i32, address: Ipv4Addr, port: u16) -> Result<OwnedFd, i32> {
    let raw = to_sockaddr(address, port);
    // SAFETY: the address lives for the call.
    unsafe {
        let fd = sys::owned(libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0))?;
        if kind == libc::SOCK_STREAM {
            // Connections that have just ended do not keep a new listener from their address.
            set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        }
        if libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), size_of_val(&raw) as u32) < 0 {
            return Err(sys::errno());
        }
        Ok(fd)
    }
}

/// A TCP socket that does not listen yet.
pub fn bind_tcp(address: Ipv4Addr, port: u16) -> Result<OwnedFd, i32> {
    bind(libc::SOCK_STREAM, address, port)
}

/// A TCP socket that listens.
pub fn listen_tcp(address: Ipv4Addr, port: u16) -> Result<OwnedFd, i32> {
    let fd = bind_tcp(address, port)?;
    // SAFETY: no pointers.
    if unsafe { libc::listen(fd.as_raw_fd(), super::BACKLOG) } < 0 { Err(sys::errno()) } else { Ok(fd) }
}

/// A UDP socket.
pub fn bind_udp(address: Ipv4Addr, port: u16) -> Result<OwnedFd, i32> {
    bind(libc::SOCK_DGRAM, address, port)
}

/// The address and port of this end.
pub fn local_address(fd: &OwnedFd) -> Option<(Ipv4Addr, u16)> {
    let mut raw = to_sockaddr(Ipv4Addr::UNSPECIFIED, 0);
    let mut size = size_of_val(&raw) as u32;
    // SAFETY: the address lives for the call and has the size that is given.
    let result = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &mut size) };
    if result < 0 { None } else { from_sockaddr(&raw) }
}

/// Closes a connection so that the other end sees a reset.
pub fn reset(fd: OwnedFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option lives for the call.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as u32,
        );
    }
}

/// Receives a datagram that fits; `None` when there is none. A longer one is cut, and so not understood.
pub fn receive_from(fd: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, Ipv4Addr, u16)> {
    let mut raw = to_sockaddr(Ipv4Addr::UNSPECIFIED, 0);
    let mut size = size_of_val(&raw) as u32;
    // SAFETY: buffer and address live for the call and have the sizes that are given.
    let read = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            (&raw mut raw).cast(),
            &mut size,
        )
    };
    let (address, port) = from_sockaddr(&raw).unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
    if read < 0 { None } else { Some((read as usize, address, port)) }
}

/// Sends a datagram, or drops it: the client retries.
pub fn send_to(fd: &OwnedFd, bytes: &[u8], address: Ipv4Addr, port: u16) {
    let raw = to_sockaddr(address, port);
    // SAFETY: bytes and address live for the call.
    unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
            (&raw const raw).cast(),
            size_of_val(&raw) as u32,
        );
    }
}
