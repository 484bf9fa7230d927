//! Symlinks that `ls -l` can list under gVisor's versions before 2025.
//!
//! Those answer EBADF when a program asks for an attribute of a symlink on the disk, and `ls -l` prints an
//! error for each. They keep no attributes on the disk, so that nothing is lost when the question is answered
//! with "not supported", which programs expect. The filter is inherited by every process of the sandbox.

use std::ffi::CStr;
use std::io;

/// `AUDIT_ARCH_AARCH64` and `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

/// What most images have as a symlink; otherwise one is made for a moment.
const USUAL: [&CStr; 5] = [c"/bin", c"/lib", c"/sbin", c"/var/run", c"/etc/mtab"];
const OWN: &CStr = c"/.cay-link";

/// Has every process of the sandbox answered in that way, where this kernel answers EBADF. Needs the right to
/// administrate the sandbox and a process with one thread.
pub fn mend() {
    if answers_bad_descriptor() {
        // Without the right `ls -l` prints its errors and works.
        let _ = refuse_questions();
    }
}

fn answers_bad_descriptor() -> bool {
    match USUAL.iter().find_map(|path| errno_of_question(path)) {
        Some(errno) => errno == libc::EBADF,
        None => {
            // SAFETY: constant strings.
            let made = unsafe { libc::symlink(c"/".as_ptr(), OWN.as_ptr()) } == 0;
            let errno = errno_of_question(OWN);
            if made {
                // SAFETY: a constant string.
                unsafe { libc::unlink(OWN.as_ptr()) };
            }
            errno == Some(libc::EBADF)
        }
    }
}

/// What asking for an attribute says; nothing if there is no symlink.
fn errno_of_question(path: &CStr) -> Option<i32> {
    // SAFETY: constant strings; zeroed memory that lives for the calls.
    unsafe {
        let mut info: libc::stat = std::mem::zeroed();
        if libc::lstat(path.as_ptr(), &mut info) != 0 || info.st_mode & libc::S_IFMT != libc::S_IFLNK {
            return None;
        }
        let size = libc::lgetxattr(path.as_ptr(), c"security.selinux".as_ptr(), std::ptr::null_mut(), 0);
        Some(if size < 0 { crate::sys::errno() } else { 0 })
    }
}

fn refuse_questions() -> io::Result<()> {
    let step =
        |code: u32, k: u32, unequal: u8| libc::sock_filter { code: code as u16, jt: 0, jf: unequal, k };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0);
    let equal = |value, otherwise| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, otherwise);
    let end = |value| step(libc::BPF_RET | libc::BPF_K, value, 0);
    // `struct seccomp_data` has the number of the call at 0 and the architecture at 4.
    let mut filter = [
        load(4),
        equal(ARCHITECTURE, 3),
        load(0),
        equal(libc::SYS_lgetxattr as u32, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives for the call, which copies it.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
