//! Mounts by the kernel's newer calls: a mount is made, given its attributes, and then put at a path.

use super::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// The argument of `mount_setattr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A mount of the tree that is nowhere yet.
pub(super) fn clone_tree(tree: &CStr) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint;
    // SAFETY: the path ends with NUL; the result is a descriptor of ours or -1.
    unsafe {
        let fd = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, tree.as_ptr(), flags);
        check(fd as libc::c_int).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

pub(super) fn set_attributes(mount: &OwnedFd, userns: Option<&OwnedFd>, read_only: bool) -> io::Result<()> {
    let idmap = if userns.is_some() { MOUNT_ATTR_IDMAP } else { 0 };
    let attributes = MountAttributes {
        set: MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | idmap | if read_only { MOUNT_ATTR_RDONLY } else { 0 },
        clear: 0,
        propagation: 0,
        userns: userns.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let size = size_of::<MountAttributes>();
    // SAFETY: the structure lives through the call and has that size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size,
        )
    };
    check(result as libc::c_int).map(drop)
}

pub(super) fn put(mount: &OwnedFd, at: &CStr) -> io::Result<()> {
    let (fd, nowhere) = (mount.as_raw_fd(), c"".as_ptr());
    // SAFETY: both paths end with NUL.
    let result = unsafe {
        libc::syscall(libc::SYS_move_mount, fd, nowhere, libc::AT_FDCWD, at.as_ptr(), MOVE_MOUNT_F_EMPTY_PATH)
    };
    check(result as libc::c_int).map(drop)
}

/// A mount of the directory that is nowhere yet, without what is mounted below it.
pub(super) fn clone_directory(directory: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint | libc::AT_EMPTY_PATH as libc::c_uint;
    // SAFETY: the path ends with NUL; the result is a descriptor of ours or -1.
    unsafe {
        let fd = libc::syscall(libc::SYS_open_tree, directory.as_raw_fd(), c"".as_ptr(), flags);
        check(fd as libc::c_int).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}
