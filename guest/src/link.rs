//! How the guest gets its connection: it dials, or it is dialled.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::sys;

/// Where the server is.
pub enum Way {
    /// It listens there.
    Dial(PathBuf),
    /// We listen there.
    Serve(PathBuf),
}

/// The pauses between attempts: short at first, since a server that has just hung up comes back soon.
#[derive(Default)]
pub struct Backoff {
    attempts: u32,
    hurried: u32,
}

/// How many pauses are shorter after the server has asked us to hang up.
const HURRIED: u32 = 4;

impl Backoff {
    /// The next pause: 20 ms, then twice as long each time, up to a second.
    pub fn pause(&mut self) -> Duration {
        if self.hurried > 0 {
            self.hurried -= 1;
            return Duration::from_millis(2 << (HURRIED - 1 - self.hurried));
        }
        let pause = 20u64 << self.attempts.min(6);
        self.attempts = self.attempts.saturating_add(1);
        Duration::from_millis(pause.min(1000))
    }

    /// A connection was good: begin anew.
    pub fn reset(&mut self) {
        self.attempts = 0;
        self.hurried = 0;
    }

    /// The server waits for us: begin anew with 2 ms, 4 ms and so on.
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
    sys::owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })
}

/// Connects to a unix socket; the descriptor does not block.
pub fn dial(path: &std::path::Path) -> Result<OwnedFd, i32> {
    let address = address(path)?;
    let fd = socket()?;
    // SAFETY: the address lives for the call.
    if unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) } < 0 {
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

/// Takes a connection that waits.
pub fn accept(listener: &OwnedFd) -> Result<OwnedFd, i32> {
    // SAFETY: no address is asked for.
    sys::owned(unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) })
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
