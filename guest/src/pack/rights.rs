//! Drops all rights of a process that reads a foreign archive but one: to change files of its root directory.

const VERSION: u32 = 0x2008_0522;
const CHOWN: u32 = 1;
const DAC_OVERRIDE: u32 = 1 << 1;
const FOWNER: u32 = 1 << 3;
const FSETID: u32 = 1 << 4;
const KEPT: u32 = CHOWN | DAC_OVERRIDE | FOWNER | FSETID;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Rights {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up every capability that giving files their owners and modes does not need, and the way to get one
/// back. A kernel that refuses leaves the process with what it had: the root directory bounds it already.
pub fn keep_those_for_files() {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut rights = [Rights::default(); 2];
    // SAFETY: both structures have the layout and the size that this version of the calls has.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if libc::syscall(libc::SYS_capget, &raw mut header, rights.as_mut_ptr()) != 0 {
            return;
        }
        let kept = rights[0].permitted & KEPT;
        rights = [Rights { effective: kept, permitted: kept, inheritable: 0 }, Rights::default()];
        libc::syscall(libc::SYS_capset, &raw mut header, rights.as_ptr());
    }
}
