//! The few system calls that `std` does not have, with their errors as numbers.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The calling thread's last error.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Milliseconds since the epoch.
pub fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as i64)
}

/// Takes ownership of a descriptor that a system call returned.
pub fn owned(fd: i32) -> Result<OwnedFd, i32> {
    // SAFETY: a descriptor that the kernel has just made belongs to nobody else.
    if fd < 0 { Err(errno()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

/// What `read` or `write` returned; `None` when a signal interrupted the call and it is to be repeated.
fn transferred(n: isize) -> Option<Result<Option<usize>, i32>> {
    if n >= 0 {
        return Some(Ok(Some(n as usize)));
    }
    match errno() {
        libc::EINTR => None,
        libc::EAGAIN => Some(Ok(None)),
        errno => Some(Err(errno)),
    }
}

/// Reads; `Ok(None)` when there is nothing to read now.
pub fn read(fd: RawFd, buffer: &mut [u8]) -> Result<Option<usize>, i32> {
    loop {
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        if let Some(done) = transferred(n) {
            return done;
        }
    }
}

/// Writes; `Ok(None)` when there is no room now.
pub fn write(fd: RawFd, bytes: &[u8]) -> Result<Option<usize>, i32> {
    loop {
        // SAFETY: the slice is valid for its length.
        let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if let Some(done) = transferred(n) {
            return done;
        }
    }
}

/// Writes several pieces in one call; `None` when the descriptor takes nothing now.
pub fn write_vectored(fd: RawFd, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, i32> {
    loop {
        // SAFETY: `IoSlice` is an `iovec`, and the slices are valid for their lengths.
        let n = unsafe { libc::writev(fd, pieces.as_ptr().cast(), pieces.len() as libc::c_int) };
        if let Some(done) = transferred(n) {
            return done;
        }
    }
}

/// An event descriptor, not blocking.
pub fn eventfd() -> Result<OwnedFd, i32> {
    // SAFETY: no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Makes an event descriptor readable.
pub fn poke(fd: RawFd) {
    let _ = write(fd, &1u64.to_ne_bytes());
}

/// A pipe `(read end, write end)`, closed on exec.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), i32> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(errno());
    }
    Ok((owned(fds[0])?, owned(fds[1])?))
}

/// Makes a descriptor non-blocking.
pub fn nonblocking(fd: &OwnedFd) -> Result<(), i32> {
    // SAFETY: no pointers.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
        Err(errno())
    } else {
        Ok(())
    }
}

/// Bytes that cannot be guessed, or on a kernel without `getrandom` at least not the same twice.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if n != N as isize {
        let mut random = Random::new(now_ms() as u64 ^ (u64::from(std::process::id()) << 40));
        bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
    }
    bytes
}

/// Numbers that look random and are the same for the same seed: for jitter and for tests.
pub struct Random(u64);

impl Random {
    /// Starts a sequence.
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// A number below `limit`, or 0 for a limit of 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if limit == 0 { 0 } else { (self.0 >> 33) % limit }
    }
}
