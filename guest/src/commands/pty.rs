//! Terminals.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

/// Opens a terminal of that size that belongs to `uid`: `(our end, the command's end)`.
pub fn open(size: (u16, u16), uid: u32) -> Result<(OwnedFd, OwnedFd), i32> {
    // SAFETY: constant strings, and integers that live for the calls.
    unsafe {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let ours = sys::owned(libc::open(c"/dev/ptmx".as_ptr(), flags | libc::O_NONBLOCK))
            .or_else(|_| sys::owned(libc::open(c"/dev/pts/ptmx".as_ptr(), flags | libc::O_NONBLOCK)))?;
        let unlock: libc::c_int = 0;
        let mut number: libc::c_uint = 0;
        if libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &unlock) < 0
            || libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTN, &mut number) < 0
        {
            return Err(sys::errno());
        }
        let path = format!("/dev/pts/{number}\0");
        let theirs = sys::owned(libc::open(path.as_ptr().cast(), flags))?;
        resize(&ours, size)?;
        // Where the kernel does not let us, the terminal stays root's; the command has it open in any case.
        libc::fchown(theirs.as_raw_fd(), uid, libc::gid_t::MAX);
        Ok((ours, theirs))
    }
}

/// Changes the size. The foreground group gets SIGWINCH.
pub fn resize(ours: &OwnedFd, (cols, rows): (u16, u16)) -> Result<(), i32> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the size lives for the call.
    if unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSWINSZ, &size) } < 0 {
        Err(sys::errno())
    } else {
        Ok(())
    }
}
