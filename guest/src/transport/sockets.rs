//! Sockets: dialling the server, or listening for it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::sys;

/// How the guest and the server find each other.
pub enum Endpoint {
    /// The server listens there, and the guest dials.
    Dial(PathBuf),
    /// The guest listens there.
    Serve(PathBuf),
}

/// The delays between attempts to connect: short at first, because a server that has just hung up comes back
/// soon.
#[derive(Default)]
pub struct Backoff {
    attempts: u32,
    hurried: u32,
}

/// Number of shorter delays after a HANGUP.
const HURRIED: u32 = 4;

impl Backoff {
    /// The next delay: 20 ms, then doubled each time, up to a second.
    pub fn pause(&mut self) -> Duration {
        if self.hurried > 0 {
            self.hurried -= 1;
            return Duration::from_millis(2 << (HURRIED - 1 - self.hurried));
        }
        let pause = 20u64 << self.attempts.min(6);
        self.attempts = self.attempts.saturating_add(1);
        Duration::from_millis(pause.min(1000))
    }

    /// Resets the delays after a successful connection.
    pub fn reset(&mut self) {
        self.attempts = 0;
        self.hurried = 0;
    }

    /// After a HANGUP: starts again with 2 ms, 4 ms and so on.
    pub fn hurry(&mut self) {
        self.attempts = 0;
        self.hurried = HURRIED;
    }
}

fn address(path: &std::path::Path) -> Result<libc::sockaddr_un, i32> {
    // SAFETY: all zeros is an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

fn socket() -> Result<OwnedFd, i32> {
    // SAFETY: no pointers.
    sys::owned(unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })
}

/// Connects to a unix socket; the descriptor does not block.
pub fn dial(path: &std::path::Path) -> Result<OwnedFd, i32> {
    let address = address(path)?;
    let fd = socket()?;
    // SAFETY: the address lives for the call.
    if unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) } < 0
    {
        return Err(sys::errno());
    }
    Ok(fd)
}

/// Listens on a unix socket that only its owner may use.
pub fn listen(path: &std::path::Path) -> Result<OwnedFd, i32> {
    if let Some(parent) = path.parent() {
        let _ = std::fs::create_dir_all(parent);
    }
    let address = address(path)?;
    let _ = std::fs::remove_file(path);
    let fd = socket()?;
    // SAFETY: the address lives for the call. The mode is right from the first moment, by the umask.
    unsafe {
        let before = libc::umask(0o177);
        let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32);
        let errno = sys::errno();
        libc::umask(before);
        if bound < 0 {
            return Err(errno);
        }
        if libc::listen(fd.as_raw_fd(), 16) < 0 {
            return Err(sys::errno());
        }
    }
    Ok(fd)
}

/// Listens on a TCP port of every address, IPv6 and IPv4 where both exist. Returns the port, which matters
/// for port 0.
pub fn listen_tcp(port: u16) -> Result<(OwnedFd, u16), i32> {
    let fd = listen_v6(port).or_else(|_| listen_v4(port))?;
    // SAFETY: all zeros is an address; it lives for the call and has room for either family, whose port is at
    // the same place.
    unsafe {
        let mut address: libc::sockaddr_in6 = std::mem::zeroed();
        let mut size = size_of_val(&address) as u32;
        if libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &mut size) < 0 {
            return Err(sys::errno());
        }
        Ok((fd, u16::from_be(address.sin6_port)))
    }
}

fn listen_v6(port: u16) -> Result<OwnedFd, i32> {
    let fd = tcp(libc::AF_INET6)?;
    set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    // SAFETY: all zeros is the address of every interface.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
    address.sin6_port = port.to_be();
    // SAFETY: the address lives for the call.
    bound(fd, |fd| unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) })
}

fn listen_v4(port: u16) -> Result<OwnedFd, i32> {
    let fd = tcp(libc::AF_INET)?;
    // SAFETY: all zeros is the address of every interface.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = port.to_be();
    // SAFETY: the address lives for the call.
    bound(fd, |fd| unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) })
}

fn tcp(family: i32) -> Result<OwnedFd, i32> {
    // SAFETY: no pointers.
    let fd = sys::owned(unsafe {
        libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })?;
    // A restarted guest finds connections of the one before.
    set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    Ok(fd)
}

fn bound(fd: OwnedFd, bind: impl Fn(i32) -> i32) -> Result<OwnedFd, i32> {
    // SAFETY: no pointers.
    if bind(fd.as_raw_fd()) < 0 || unsafe { libc::listen(fd.as_raw_fd(), 128) } < 0 {
        Err(sys::errno())
    } else {
        Ok(fd)
    }
}

fn set(fd: &OwnedFd, level: i32, name: i32, value: libc::c_int) -> Result<(), i32> {
    // SAFETY: the value lives for the call.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size_of_val(&value) as u32)
    };
    if result < 0 { Err(sys::errno()) } else { Ok(()) }
}

/// Sends small messages at once.
pub fn no_delay(fd: &OwnedFd) {
    let _ = set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
}

/// Accepts a waiting connection.
pub fn accept(listener: &OwnedFd) -> Result<OwnedFd, i32> {
    // SAFETY: no address is asked for.
    sys::owned(unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..9).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.pause().as_millis(), 20);
    }

    #[test]
    fn pauses_are_shorter_after_a_hang_up() {
        let mut backoff = Backoff::default();
        backoff.pause();
        backoff.hurry();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 20, 40, 80]);
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        assert_eq!(dial(std::path::Path::new(&"x".repeat(200))).unwrap_err(), libc::ENAMETOOLONG);
    }
}
