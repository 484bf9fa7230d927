//! The process above each command: it finds everything that the command leaves behind.
//!
//! A supervisor is a child subreaper, so what daemonises itself (double fork, `setsid`, empty environment)
//! becomes its child and stays below it in the process tree, where a kill can find it. It lives until it has
//! no child left.
//!
//! To be cheap it is no copy of the guest: it shares the guest's memory and descriptors (`CLONE_VM |
//! CLONE_FILES`) and needs nothing but a small stack. It may therefore run only the code in this file: no
//! allocation, no C library, no panic. The command itself is made with `CLONE_VM | CLONE_VFORK` and a
//! descriptor table of its own: it borrows the memory until it calls `execve`.
//!
//! Signals cannot reach the guest through it: a supervisor blocks them all, and a SIGKILL ends only the
//! supervisor, whereupon the guest as PID 1 inherits the command.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, Ordering};

use super::raw::{call, clone};

/// Size of the memory that a supervisor and the start of its command use: `Shared`, then two stacks.
pub const AREA: usize = 65_536;
const SHARED: usize = 4096;
const CHILD_STACK: usize = 28_672;

/// Where a command is in its life.
pub mod phase {
    /// The supervisor has not got to it yet.
    pub const STARTING: i32 = 0;
    /// `execve` has succeeded.
    pub const RUNNING: i32 = 1;
    /// It could not be started: `step` and `errno` say why.
    pub const FAILED: i32 = 2;
    /// The command's own process is over: `status` says how.
    pub const ENDED: i32 = 3;
}

/// What was being done when a start failed.
pub mod step {
    /// Making the process.
    pub const CLONE: i32 = 1;
    /// Session, terminal and standard streams.
    pub const STREAMS: i32 = 2;
    /// Becoming the user.
    pub const USER: i32 = 3;
    /// Going to the working directory.
    pub const WORKDIR: i32 = 4;
    /// `execve`.
    pub const EXEC: i32 = 5;
}

/// A program to try, with the arguments to give it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Candidate {
    /// Path, NUL-terminated.
    pub path: *const u8,
    /// Arguments, ended by a null pointer.
    pub argv: *const *const u8,
}

/// What guest, supervisor and starting command exchange. It lives at the bottom of the area.
#[repr(C)]
pub struct Shared {
    /// See `phase`.
    pub phase: AtomicI32,
    /// Of the command, as soon as there is a process.
    pub pid: AtomicI32,
    /// How the command's own process ended, as `wait4` reports it.
    pub status: AtomicI32,
    /// What the last wait returned. The kernel writes it before a signal can end the supervisor, so that the
    /// status of a command is known also if the supervisor was killed on its way back from the wait.
    pub waited: UnsafeCell<libc::siginfo_t>,
    /// See `step`.
    pub step: AtomicI32,
    /// Why a start failed.
    pub errno: AtomicI32,
    /// Poked when the phase changes.
    pub poke: i32,
    /// What becomes descriptors 0, 1 and 2.
    pub streams: [i32; 3],
    /// They are a terminal to be controlled.
    pub pty: bool,
    /// The guest is not PID 1, whose end would kill all processes: an orphaned supervisor would hold its
    /// descriptors.
    pub dies_with_guest: bool,
    /// Become the user.
    pub change_user: bool,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Number of supplementary groups.
    pub group_count: usize,
    /// Supplementary groups.
    pub groups: *const u32,
    /// Working directory, NUL-terminated.
    pub cwd: *const u8,
    /// Programs to try in turn, ended by one with a null path.
    pub candidates: *const Candidate,
    /// Environment, ended by a null pointer.
    pub env: *const *const u8,
    /// The limit of open files that commands get.
    pub nofile: [u64; 2],
    /// RLIMIT_NPROC, or infinite.
    pub nproc: [u64; 2],
}

static NO_SIGNALS: u64 = 0;
static ALL_SIGNALS: u64 = !0;

/// Starts the supervisor; its pid, or a negative errno. The caller has blocked all signals of its thread.
///
/// # Safety
/// `area` is `AREA` bytes, page-aligned, holds a filled `Shared` at its bottom and stays until the supervisor
/// has been waited for; everything that `Shared` points to stays until the phase is no longer `STARTING`.
pub unsafe fn start(area: *mut u8) -> isize {
    // SAFETY: the upper end of the area is the supervisor's stack.
    unsafe {
        clone(
            (libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD) as usize,
            area.add(AREA - 64),
            core::ptr::null_mut(),
            supervise,
            area,
        )
    }
}

unsafe extern "C" fn supervise(area: *mut u8) -> ! {
    // SAFETY: only this file's code, on memory that is ours as `start` demands.
    unsafe {
        let shared = &*(area as *const Shared);
        call(libc::SYS_prctl, libc::PR_SET_CHILD_SUBREAPER as usize, 1, 0, 0, 0);
        if shared.dies_with_guest {
            call(libc::SYS_prctl, libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0);
        }
        // The kernel notes the pid before the command runs: whatever happens to us afterwards, the guest
        // knows it.
        let flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD) as usize;
        let main = clone(flags, area.add(SHARED + CHILD_STACK), shared.pid.as_ptr(), run_command, area);
        if main < 0 {
            fail(shared, step::CLONE, main);
            exit(0);
        }
        if shared.phase.load(Ordering::Acquire) != phase::FAILED {
            shared.phase.store(phase::RUNNING, Ordering::Release);
            poke(shared);
        }
        let mut notified = true;
        loop {
            // Once the command itself is over, whether others are left is asked first: if none is, our own
            // end says so.
            let options = if notified { 0 } else { libc::WNOHANG as usize };
            let result = call(
                libc::SYS_waitid,
                libc::P_ALL as usize,
                0,
                shared.waited.get() as usize,
                options | (libc::WEXITED | libc::__WALL) as usize,
                0,
            );
            let pid = if result < 0 { result } else { (*shared.waited.get()).si_pid() as isize };
            if pid == main {
                if shared.phase.load(Ordering::Relaxed) == phase::RUNNING {
                    shared.status.store(wait_status(&*shared.waited.get()), Ordering::Relaxed);
                    shared.phase.store(phase::ENDED, Ordering::Release);
                    notified = false;
                }
            } else if pid == 0 {
                poke(shared);
                notified = true;
            } else if pid < 0 && pid != -(libc::EINTR as isize) {
                exit(0);
            }
        }
    }
}

/// The status of a process that has ended, as `wait4` reports it.
#[inline(always)]
pub fn wait_status(info: &libc::siginfo_t) -> i32 {
    // SAFETY: a wait filled it.
    let status = unsafe { info.si_status() };
    match info.si_code {
        libc::CLD_EXITED => (status & 0xff) << 8,
        libc::CLD_DUMPED => status | 0x80,
        _ => status,
    }
}

unsafe extern "C" fn run_command(area: *mut u8) -> ! {
    // SAFETY: as above; descriptors and identity are this process's own.
    unsafe {
        let shared = &*(area as *const Shared);
        call(libc::SYS_setsid, 0, 0, 0, 0, 0);
        // Numbers below three would be overwritten by one another, so the guest never passes them.
        let mut target = 0usize;
        while target < 3 {
            let from = *shared.streams.as_ptr().add(target) as usize;
            let result = call(libc::SYS_dup3, from, target, 0, 0, 0);
            if result < 0 {
                fail(shared, step::STREAMS, result);
                exit(127);
            }
            target += 1;
        }
        if shared.pty {
            let result = call(libc::SYS_ioctl, 0, libc::TIOCSCTTY as usize, 0, 0, 0);
            if result < 0 {
                fail(shared, step::STREAMS, result);
                exit(127);
            }
        }
        raise_oom_score();
        call(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE as usize, shared.nofile.as_ptr() as usize, 0, 0);
        if shared.nproc[1] != libc::RLIM_INFINITY {
            call(libc::SYS_prlimit64, 0, libc::RLIMIT_NPROC as usize, shared.nproc.as_ptr() as usize, 0, 0);
        }
        if shared.change_user {
            let mut result = call(libc::SYS_setgroups, shared.group_count, shared.groups as usize, 0, 0, 0);
            if result >= 0 {
                let gid = shared.gid as usize;
                result = call(libc::SYS_setresgid, gid, gid, gid, 0, 0);
            }
            if result >= 0 {
                let uid = shared.uid as usize;
                result = call(libc::SYS_setresuid, uid, uid, uid, 0, 0);
            }
            if result < 0 {
                fail(shared, step::USER, result);
                exit(127);
            }
        }
        let result = call(libc::SYS_chdir, shared.cwd as usize, 0, 0, 0, 0);
        if result < 0 {
            fail(shared, step::WORKDIR, result);
            exit(127);
        }
        // The only disposition that exec would keep: the guest ignores SIGPIPE. First it, then the mask.
        let default: [u64; 4] = [0; 4];
        call(libc::SYS_rt_sigaction, libc::SIGPIPE as usize, default.as_ptr() as usize, 0, 8, 0);
        call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as usize, &raw const NO_SIGNALS as usize, 0, 8, 0);
        let mut error = -(libc::ENOENT as isize);
        let mut candidate = shared.candidates;
        while !(*candidate).path.is_null() {
            let result = call(
                libc::SYS_execve,
                (*candidate).path as usize,
                (*candidate).argv as usize,
                shared.env as usize,
                0,
                0,
            );
            // As `execvp` does it: a program that may not be run is remembered while others are tried.
            if result == -(libc::EACCES as isize) {
                error = result;
            } else if result != -(libc::ENOENT as isize) && result != -(libc::ENOTDIR as isize) {
                error = result;
                break;
            }
            candidate = candidate.add(1);
        }
        call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as usize, &raw const ALL_SIGNALS as usize, 0, 8, 0);
        fail(shared, step::EXEC, error);
        exit(127)
    }
}

/// The kernel takes commands before it takes the guest. The guest's own score is not changed by it: a process
/// made by vfork has its own.
#[inline(always)]
unsafe fn raise_oom_score() {
    // SAFETY: constant strings.
    unsafe {
        let path = c"/proc/self/oom_score_adj";
        let fd = call(
            libc::SYS_openat,
            libc::AT_FDCWD as usize,
            path.as_ptr() as usize,
            (libc::O_WRONLY | libc::O_CLOEXEC) as usize,
            0,
            0,
        );
        if fd >= 0 {
            call(libc::SYS_write, fd as usize, c"500".as_ptr() as usize, 3, 0, 0);
            call(libc::SYS_close, fd as usize, 0, 0, 0, 0);
        }
    }
}

#[inline(always)]
fn fail(shared: &Shared, step: i32, result: isize) {
    shared.step.store(step, Ordering::Relaxed);
    shared.errno.store(-result as i32, Ordering::Relaxed);
    shared.phase.store(phase::FAILED, Ordering::Release);
}

#[inline(always)]
unsafe fn poke(shared: &Shared) {
    let one = 1u64;
    // SAFETY: eight bytes that live for the call.
    unsafe { call(libc::SYS_write, shared.poke as usize, &raw const one as usize, 8, 0, 0) };
}

#[inline(always)]
unsafe fn exit(code: usize) -> ! {
    // SAFETY: ends this process and no other.
    unsafe {
        call(libc::SYS_exit_group, code, 0, 0, 0, 0);
        core::hint::unreachable_unchecked()
    }
}
