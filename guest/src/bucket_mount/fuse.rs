//! The device of FUSE, the mount, and the few messages that the pump answers itself.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What one call reads or writes at most.
pub(super) const MOST_DATA: usize = 1024 * 1024;
/// The longest message: data, headers, names.
pub(super) const MOST_MESSAGE: usize = MOST_DATA + 64 * 1024;
pub(super) const REQUEST_HEADER: usize = 40;
pub(super) const ANSWER_HEADER: usize = 16;

pub(super) const FORGET: u32 = 2;
pub(super) const INIT: u32 = 26;
pub(super) const INTERRUPT: u32 = 36;
pub(super) const BATCH_FORGET: u32 = 42;

const VERSION: (u32, u32) = (7, 31);
const ASYNC_READ: u32 = 1;
const ATOMIC_O_TRUNC: u32 = 1 << 3;
const BIG_WRITES: u32 = 1 << 5;
const AUTO_INVAL_DATA: u32 = 1 << 12;
const DO_READDIRPLUS: u32 = 1 << 13;
const READDIRPLUS_AUTO: u32 = 1 << 14;
const PARALLEL_DIROPS: u32 = 1 << 18;
const MAX_PAGES: u32 = 1 << 22;
const WANTED: u32 = ASYNC_READ
    | ATOMIC_O_TRUNC
    | BIG_WRITES
    | AUTO_INVAL_DATA
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | PARALLEL_DIROPS
    | MAX_PAGES;
/// Calls that nobody waits for, such as reading ahead, at once.
const MOST_BACKGROUND: u16 = 64;
const PAGE: usize = 4096;

pub(super) fn open_device() -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path ends with NUL; the result is a descriptor of ours or -1.
    unsafe {
        let fd = libc::open(c"/dev/fuse".as_ptr(), flags);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Every user may use it: who can reach it is decided by where it is mounted.
pub(super) fn mount(device: BorrowedFd, at: &CStr, read_only: bool) -> io::Result<()> {
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={MOST_DATA}",
        device.as_raw_fd()
    );
    let options = CString::new(options)?;
    let flags =
        libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME | if read_only { libc::MS_RDONLY } else { 0 };
    // SAFETY: all strings end with NUL and live through the call.
    let result = unsafe {
        libc::mount(
            c"cay-bucket".as_ptr(),
            at.as_ptr(),
            c"fuse.cay-bucket".as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn unmount(at: &CStr) {
    // SAFETY: the path ends with NUL. Whoever still uses it gets errors when the device is closed.
    unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
}

/// The header of a request: what it is, and the number that its answer has.
pub(super) fn request_of(message: &[u8]) -> Option<(u32, u64)> {
    let opcode = u32::from_le_bytes(message.get(4..8)?.try_into().ok()?);
    let unique = u64::from_le_bytes(message.get(8..16)?.try_into().ok()?);
    (message.len() >= REQUEST_HEADER).then_some((opcode, unique))
}

/// What an interrupt is about.
pub(super) fn interrupted_by(message: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(message.get(REQUEST_HEADER..REQUEST_HEADER + 8)?.try_into().ok()?))
}

pub(super) fn failure(unique: u64, errno: i32) -> Vec<u8> {
    answer(unique, -errno, &[])
}

fn answer(unique: u64, error: i32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(ANSWER_HEADER + body.len());
    message.extend_from_slice(&((ANSWER_HEADER + body.len()) as u32).to_le_bytes());
    message.extend_from_slice(&error.to_le_bytes());
    message.extend_from_slice(&unique.to_le_bytes());
    message.extend_from_slice(body);
    message
}

/// The answer to the kernel's first message: what both sides know.
pub(super) fn welcome(message: &[u8]) -> Option<Vec<u8>> {
    let (_, unique) = request_of(message)?;
    let number = |at: usize| -> Option<u32> {
        let at = REQUEST_HEADER + at;
        Some(u32::from_le_bytes(message.get(at..at + 4)?.try_into().ok()?))
    };
    let (major, readahead, offered) = (number(0)?, number(8)?, number(12)?);
    if major != VERSION.0 {
        return Some(failure(unique, libc::EPROTO));
    }
    let mut body = Vec::with_capacity(64);
    for value in [VERSION.0, VERSION.1, readahead.min(MOST_DATA as u32), offered & WANTED] {
        body.extend_from_slice(&value.to_le_bytes());
    }
    body.extend_from_slice(&MOST_BACKGROUND.to_le_bytes());
    body.extend_from_slice(&(MOST_BACKGROUND / 4 * 3).to_le_bytes());
    body.extend_from_slice(&(MOST_DATA as u32).to_le_bytes());
    body.extend_from_slice(&1u32.to_le_bytes());
    body.extend_from_slice(&((MOST_DATA / PAGE) as u16).to_le_bytes());
    body.resize(64, 0);
    Some(answer(unique, 0, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, unique: u64, body: &[u8]) -> Vec<u8> {
        let mut message = vec![0; REQUEST_HEADER];
        message[4..8].copy_from_slice(&opcode.to_le_bytes());
        message[8..16].copy_from_slice(&unique.to_le_bytes());
        message.extend_from_slice(body);
        message
    }

    #[test]
    fn the_first_message_is_answered_with_what_both_know() {
        let mut body = Vec::new();
        for value in [7u32, 45, 131_072, ASYNC_READ | MAX_PAGES | 1 << 30] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        let answer = welcome(&request(INIT, 9, &body)).unwrap();
        assert_eq!(answer.len(), 80);
        assert_eq!(answer[..4], 80u32.to_le_bytes());
        assert_eq!(answer[8..16], 9u64.to_le_bytes());
        assert_eq!(answer[28..32], (ASYNC_READ | MAX_PAGES).to_le_bytes());
        assert_eq!(answer[44..46], 256u16.to_le_bytes());
        assert!(welcome(&request(INIT, 9, &[])).is_none());
    }

    #[test]
    fn a_header_is_whole_or_none() {
        assert_eq!(request_of(&request(INTERRUPT, 7, &[])), Some((INTERRUPT, 7)));
        assert_eq!(request_of(&[0; 39]), None);
        assert_eq!(interrupted_by(&request(INTERRUPT, 7, &3u64.to_le_bytes())), Some(3));
        assert_eq!(interrupted_by(&request(INTERRUPT, 7, &[])), None);
        assert_eq!(failure(5, libc::EIO)[4..8], (-libc::EIO).to_le_bytes());
    }
}
