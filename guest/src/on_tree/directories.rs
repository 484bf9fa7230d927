//! Directories by descriptors. No symlink is followed on the way to one.

use super::check;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A directory as a descriptor that opens nothing.
pub(super) fn directory(path: &OsStr) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_bytes())?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with NUL; the result is a descriptor of ours or -1.
    unsafe { check(libc::open(path.as_ptr(), flags)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Goes down name by name, each a directory and no symlink. What is missing is made if `makes`, with the
/// owner and the mode of the directory that it is in.
pub(super) fn descend(root: OwnedFd, path: &OsStr, makes: bool) -> io::Result<OwnedFd> {
    let mut here = root;
    for name in path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
        if name == b".." {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let name = CString::new(name)?;
        here = match enter(&here, &name) {
            Err(error) if makes && error.raw_os_error() == Some(libc::ENOENT) => make(&here, &name)?,
            entered => entered?,
        };
    }
    Ok(here)
}

/// One step down. A name without a slash leads nowhere else.
fn enter(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name ends with NUL; the result is a descriptor of ours or -1.
    unsafe {
        check(libc::openat(parent.as_raw_fd(), name.as_ptr(), flags)).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

pub(super) fn change_mode(directory: &OwnedFd, mode: libc::mode_t) -> io::Result<()> {
    // A descriptor that opens nothing can be changed by its name alone.
    let path = CString::new(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
    // SAFETY: the path ends with NUL.
    check(unsafe { libc::chmod(path.as_ptr(), mode) }).map(drop)
}

fn make(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with NUL, and the structure lives through the calls.
    unsafe {
        let mut above: libc::stat = std::mem::zeroed();
        check(libc::fstatat(parent.as_raw_fd(), c"".as_ptr(), &mut above, libc::AT_EMPTY_PATH))?;
        if libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), 0o700) != 0 {
            let error = io::Error::last_os_error();
            // Another sandbox that has the volume may have made it.
            if error.raw_os_error() != Some(libc::EEXIST) {
                return Err(error);
            }
            return enter(parent, name);
        }
        let made = enter(parent, name)?;
        change_mode(&made, above.st_mode & 0o1777)?;
        let own =
            libc::fchownat(made.as_raw_fd(), c"".as_ptr(), above.st_uid, above.st_gid, libc::AT_EMPTY_PATH);
        check(own)?;
        Ok(made)
    }
}
