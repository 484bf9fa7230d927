//! Ways out of a sandbox by sockets.

use std::io::{Error, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{Said, checked, hex, number};

const IP_OPTIONS: libc::c_int = 4;
const IP_TRANSPARENT: libc::c_int = 19;

/// Connects, sends, and takes what comes first.
pub fn tcp(address: &str, port: u16, within: Duration, data: &[u8]) -> Said {
    let target = SocketAddr::new(number::<IpAddr>(address)?, port);
    let mut stream = TcpStream::connect_timeout(&target, within)?;
    stream.set_read_timeout(Some(within))?;
    stream.write_all(data)?;
    let mut answer = [0; 2048];
    match stream.read(&mut answer) {
        Ok(0) => Ok("ended".into()),
        Ok(count) => Ok(format!("answer {}", hex(&answer[..count]))),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok("connected".into()),
        Err(error) => Err(error),
    }
}

/// Sends a datagram, and waits for one. `sent` says only that nobody objected.
pub fn udp(address: &str, port: u16, within: Duration, data: &[u8]) -> Said {
    let target = SocketAddr::new(number::<IpAddr>(address)?, port);
    let any: SocketAddr = if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.set_broadcast(true)?;
    socket.set_read_timeout(Some(within))?;
    socket.connect(target)?;
    socket.send(data)?;
    let mut answer = [0; 2048];
    match socket.recv(&mut answer) {
        Ok(count) => Ok(format!("answer {}", hex(&answer[..count]))),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok("sent".into()),
        Err(error) => Err(error),
    }
}

/// An echo request, by the socket that needs no right, or by a raw one.
pub fn icmp(address: &str, within: Duration) -> Said {
    let address: IpAddr = number(address)?;
    let (family, protocol) = if address.is_ipv4() {
        (libc::AF_INET, libc::IPPROTO_ICMP)
    } else {
        (libc::AF_INET6, libc::IPPROTO_ICMPV6)
    };
    let fd = open(family, libc::SOCK_DGRAM, protocol).or_else(|_| open(family, libc::SOCK_RAW, protocol))?;
    let socket = UdpSocket::from(fd);
    socket.set_read_timeout(Some(within))?;
    let kind = if address.is_ipv4() { 8 } else { 128 };
    let mut message = [kind, 0, 0, 0, 0, 7, 0, 1, b'c', b'a', b'y', b'!'];
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    socket.connect(SocketAddr::new(address, 0))?;
    socket.send(&message)?;
    let mut answer = [0; 512];
    match socket.recv(&mut answer) {
        Ok(_) => Ok("answer".into()),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok("sent".into()),
        Err(error) => Err(error),
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A connection whose packets ask to be passed on by way of another host.
pub fn source_route(address: &str, port: u16, within: Duration) -> Said {
    let via: Ipv4Addr = number(address)?;
    let fd = open(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    let [a, b, c, d] = via.octets();
    let options: [u8; 8] = [1, 131, 7, 4, a, b, c, d];
    // SAFETY: the option has as many bytes as it says.
    checked(
        unsafe {
            libc::setsockopt(fd.as_raw_fd(), 0, IP_OPTIONS, options.as_ptr().cast(), options.len() as u32)
        }
        .into(),
    )?;
    connect(fd, SocketAddr::new(via.into(), port), within)
}

fn connect(fd: OwnedFd, target: SocketAddr, within: Duration) -> Said {
    let SocketAddr::V4(target) = target else { return Err(Error::from_raw_os_error(libc::EAFNOSUPPORT)) };
    let stream = TcpStream::from(fd);
    stream.set_write_timeout(Some(within))?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: target.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(target.ip().octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: the address lives through the call, and its size is given.
    checked(
        unsafe {
            libc::connect(stream.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
        }
        .into(),
    )?;
    Ok("connected".into())
}

/// The right to speak from addresses that are not one's own.
pub fn transparent() -> Said {
    let fd = open(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    let on: libc::c_int = 1;
    // SAFETY: the option is an integer.
    checked(
        unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                0,
                IP_TRANSPARENT,
                (&raw const on).cast(),
                size_of_val(&on) as u32,
            )
        }
        .into(),
    )?;
    Ok("ok".into())
}

/// Whether there is a socket of this kind.
pub fn socket(family: i32, kind: i32, protocol: i32) -> Said {
    open(family, kind, protocol).map(|_| "ok".into())
}

fn open(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, Error> {
    // SAFETY: it takes no pointer, and what it gives is owned from here on.
    let fd = checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) }.into())?;
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Connects to a socket of the file system, or to an abstract one, whose name begins with a zero byte.
pub fn unix(name: &[u8]) -> Said {
    let fd = open(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    // SAFETY: all bytes zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    if name.len() >= address.sun_path.len() {
        return Err(Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let length = 2 + name.len() + usize::from(name.first() != Some(&0));
    // SAFETY: the length lies within the address.
    checked(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length as u32) }.into())?;
    Ok("connected".into())
}

/// The socket between a machine and its virtual machines.
pub fn vsock(cid: u32, port: u32) -> Said {
    let fd = open(libc::AF_VSOCK, libc::SOCK_STREAM, 0)?;
    // SAFETY: all bytes zero is a valid address.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as u16;
    address.svm_cid = cid;
    address.svm_port = port;
    // SAFETY: the address lives through the call, and its size is given.
    checked(
        unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) }
            .into(),
    )?;
    Ok("connected".into())
}

/// Asks the kernel to put an address on the first device.
pub fn add_address(address: &str) -> Said {
    let octets = number::<Ipv4Addr>(address)?.octets();
    let fd = open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let mut message = Vec::new();
    message.extend(40u32.to_ne_bytes());
    message.extend(20u16.to_ne_bytes());
    message.extend(0x405u16.to_ne_bytes());
    message.extend(1u32.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend([2, 32, 0, 0]);
    message.extend(1u32.to_ne_bytes());
    for kind in [1u16, 2] {
        message.extend(8u16.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(octets);
    }
    let all = message.len() as u32;
    message[..4].copy_from_slice(&all.to_ne_bytes());
    // SAFETY: the message lives through the call.
    checked(unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) } as _)?;
    let mut answer = [0u8; 512];
    // SAFETY: the buffer is as long as is said.
    let count =
        checked(unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) } as _)?;
    if count < 20 {
        return Ok("answer".into());
    }
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    if code == 0 { Ok("ok".into()) } else { Err(Error::from_raw_os_error(-code)) }
}
