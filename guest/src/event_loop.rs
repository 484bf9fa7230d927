//! Sets the guest up and runs its loop: one thread, which blocks only in `epoll_wait`.

use std::os::fd::AsRawFd;

use crate::commands::Commands;
use crate::commands::spawn::Spawner;
use crate::egress::Egress;
use crate::egress::redirect::Redirect;
use crate::guest::Guest;
use crate::poller::Poller;
use crate::sys;
use crate::tasks::{Notifier, Tasks};
use crate::transport::sockets::Endpoint;

/// Why the guest has ended.
pub enum End {
    /// It was asked to end.
    Asked,
    /// It was asked to restart.
    Again,
    /// A signal from outside the sandbox has ended it.
    Signalled(i32),
}

/// Runs until the guest is shut down.
pub fn run(endpoint: Endpoint) -> Result<End, String> {
    let said = |what: &'static str| {
        move |errno: i32| format!("Cannot {what}: {}", std::io::Error::from_raw_os_error(errno))
    };
    prepare_process();
    let egress = Egress::new(Redirect::set_up());
    let nofile = raise_open_files();
    let signals = block_signals().map_err(said("watch for signals"))?;
    let poke = sys::eventfd().map_err(said("make an event descriptor"))?;
    let spawner = Spawner::new(poke.as_raw_fd(), nofile).map_err(said("open /dev/null"))?;
    let tasks = Tasks::new(Notifier::new(poke.as_raw_fd()));
    let poller = Poller::new().map_err(said("make an epoll set"))?;
    let mut guest = Guest::new(endpoint, poller, Commands::new(spawner), tasks, egress, poke, signals)
        .map_err(said("listen"))?;
    let mut ready = Vec::with_capacity(64);
    while !guest.over {
        guest.turn(&mut ready);
    }
    Ok(match (guest.again, guest.ended_by) {
        (true, _) => End::Again,
        (false, Some(signal)) => End::Signalled(signal),
        (false, None) => End::Asked,
    })
}

const CAP_SYS_ADMIN: libc::c_ulong = 21;

fn prepare_process() {
    // SAFETY: constant strings; no threads yet.
    unsafe {
        // One heap for all threads, and freed memory goes back: the guest is in every sandbox and mostly
        // idle. Not as often as a full queue of frames is freed, because its pages would be faulted in again.
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 21);
        // No descriptor that we inherited may reach a command. The upper bound is what gVisor accepts.
        libc::syscall(libc::SYS_close_range, 3, 0x7fff_ffff, 0);
        // The standard streams of a command are duplicated onto 0 to 2, so the guest may use none of them.
        loop {
            let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if fd > 2 {
                libc::close(fd);
            }
            if !(0..=2).contains(&fd) {
                break;
            }
        }
        // No process inside may trace the guest, or a command before its exec. A change of user has the same
        // effect, but not before the first one.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::umask(0o022);
        libc::chdir(c"/".as_ptr());
        if libc::getpid() != 1 {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        } else {
            crate::link_attributes::mend();
            // Where the guest may set the hostname, which a restored sandbox needs, no command may.
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0);
        }
    }
}

/// The guest raises its own descriptor limit; commands get the limit that the guest was started with.
fn raise_open_files() -> [u64; 2] {
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 4096 };
    // SAFETY: the limit lives for the calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        libc::setrlimit(libc::RLIMIT_NOFILE, &raised);
    }
    [limit.rlim_cur, limit.rlim_max]
}

/// All signals are blocked, also in threads and supervisors; those that matter are read from a descriptor.
/// Dispositions are made the default once, so that commands need only undo SIGPIPE.
fn block_signals() -> Result<std::os::fd::OwnedFd, i32> {
    // SAFETY: sets live for the calls.
    unsafe {
        for number in 1..=64 {
            if ![libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, 32, 33].contains(&number) {
                libc::signal(number, libc::SIG_DFL);
            }
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        // The C library reserves two signals; the parent may have set them to ignored.
        let default = [0u64; 4];
        libc::syscall(libc::SYS_rt_sigaction, 32, default.as_ptr(), 0, 8);
        libc::syscall(libc::SYS_rt_sigaction, 33, default.as_ptr(), 0, 8);
        let all = !0u64;
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for number in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT] {
            libc::sigaddset(&mut set, number);
        }
        sys::owned(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
    }
}
