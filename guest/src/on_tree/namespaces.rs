//! User namespaces: one that an idmapped mount takes its mapping from, and one that the program joins.

use super::{Shift, User, check};
use std::ffi::{CString, OsStr};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// What an idmapped mount takes its mapping from.
pub(super) fn shifting_namespace(Shift { from, to, size }: &Shift) -> io::Result<OwnedFd> {
    mapped_namespace(&format!("{from} {to} {size}\n"))
}

/// The effective id of its maker owns a user namespace. The capabilities of root are kept meanwhile.
pub(super) fn put_own_namespace(User { root, size, at }: &User) -> io::Result<()> {
    become_user(*root, libc::SECBIT_NO_SETUID_FIXUP)?;
    let made = mapped_namespace(&format!("0 {root} {size}\n"));
    become_user(0, 0)?;
    let made = made?;
    OpenOptions::new().append(true).create(true).open(OsStr::from_bytes(at.to_bytes()))?;
    let source = CString::new(format!("/proc/self/fd/{}", made.as_raw_fd()))?;
    // SAFETY: both paths end with NUL; the other arguments may be null.
    check(unsafe {
        libc::mount(source.as_ptr(), at.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null())
    })
    .map(drop)
}

/// The effective id alone. With `NO_SETUID_FIXUP` the capabilities stay as they are.
fn become_user(id: u32, securebits: libc::c_int) -> io::Result<()> {
    let keep = u32::MAX;
    // SAFETY: no pointers. There is one thread.
    unsafe {
        check(libc::prctl(libc::PR_SET_SECUREBITS, libc::SECBIT_NO_SETUID_FIXUP))?;
        check(libc::setresuid(keep, id, keep))?;
        check(libc::prctl(libc::PR_SET_SECUREBITS, securebits)).map(drop)
    }
}

/// A user namespace with that mapping, held by a descriptor alone: the process that it was made with is gone.
fn mapped_namespace(map: &str) -> io::Result<OwnedFd> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: without a stack it forks. The child only waits for its end.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } as libc::pid_t;
    if pid == 0 {
        // SAFETY: no pointers. Whatever becomes of the parent, this process ends with it.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    check(pid)?;
    let opened = fs::write(format!("/proc/{pid}/uid_map"), map)
        .and_then(|()| fs::write(format!("/proc/{pid}/gid_map"), map))
        .and_then(|()| fs::File::open(format!("/proc/{pid}/ns/user")));
    // SAFETY: it is our own child, which nobody has waited for yet.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    opened.map(OwnedFd::from)
}
