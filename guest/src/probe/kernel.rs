//! What would change the machine, look into its kernel, or lead out of the sandbox's files.

use std::fs::OpenOptions;
use std::io::{Error, Read};
use std::os::unix::fs::OpenOptionsExt;

use super::{Said, checked, name_of};

const MAX_READ: u64 = 16 * 1024;
const MAX_LISTED: usize = 512;
const EIGHT_PAGES: usize = 8 * 4096;

/// Opens a file and does nothing with it.
pub fn open(path: &str, mode: &str) -> Said {
    OpenOptions::new()
        .read(mode.contains('r'))
        .write(mode.contains('w'))
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map(|_| "ok".into())
}

/// The beginning of a file, as one line.
pub fn read(path: &str) -> Said {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(format!("text {}", String::from_utf8_lossy(&bytes).replace(['\n', '\0'], "|")))
}

/// The names in a directory.
pub fn list(path: &str) -> Said {
    let mut names: Vec<String> = std::fs::read_dir(path)?
        .take(MAX_LISTED)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(format!("names {}", names.join("/")))
}

/// The numbers of processes that can be seen, and how many there are.
pub fn owners() -> Said {
    let seen: Vec<String> = std::fs::read_dir("/proc")?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    let commands: Vec<String> = seen
        .iter()
        .take(MAX_LISTED)
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    Ok(format!("processes {} {}", seen.len(), commands.join(",")))
}

/// Makes a system call in a child, which exits with what came of it.
pub fn call(name: &str) -> Said {
    // SAFETY: this program has one thread here. The child makes one call and exits.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(Error::last_os_error());
    }
    if child == 0 {
        let code = match make(name) {
            None => 253,
            Some(Ok(_)) => 0,
            Some(Err(error)) => error.raw_os_error().unwrap_or(252),
        };
        // SAFETY: it ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    if libc::WIFSIGNALED(status) {
        return Ok(format!("killed {}", libc::WTERMSIG(status)));
    }
    Ok(match libc::WEXITSTATUS(status) {
        0 => "ok".into(),
        253 => "unknown".into(),
        errno => name_of(&Error::from_raw_os_error(errno)),
    })
}

fn make(name: &str) -> Option<Result<libc::c_long, Error>> {
    let zeros = [0u8; EIGHT_PAGES];
    let none = std::ptr::null::<u8>();
    let root = c"/".as_ptr();
    let tmp = c"/tmp".as_ptr();
    let tmpfs = c"tmpfs".as_ptr();
    let here = i64::from(libc::AT_FDCWD);
    // SAFETY: every pointer lives through its call, and buffers are larger than what the kernel reads or
    // writes.
    let result = unsafe {
        match name {
            "unshare-mount" => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNS),
            "unshare-user" => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
            "unshare-network" => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET),
            "unshare-pid" => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWPID),
            "unshare-user-network" => {
                libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
            }
            "setns-network" => {
                let fd = libc::open(c"/proc/1/ns/net".as_ptr(), libc::O_RDONLY);
                if fd < 0 { -1 } else { libc::syscall(libc::SYS_setns, fd, libc::CLONE_NEWNET) }
            }
            "mount" => own_directory(|at| libc::syscall(libc::SYS_mount, tmpfs, at, tmpfs, 0, none)),
            "bind-mount" => {
                own_directory(|at| libc::syscall(libc::SYS_mount, root, at, none, libc::MS_BIND, none))
            }
            "remount-proc" => {
                libc::syscall(libc::SYS_mount, none, c"/proc".as_ptr(), none, libc::MS_REMOUNT, none)
            }
            // Nothing is mounted there: a process with the right gets EINVAL.
            "umount" => libc::syscall(libc::SYS_umount2, tmp, libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW),
            "pivot-root" => libc::syscall(libc::SYS_pivot_root, root, root),
            "open-tree" => libc::syscall(libc::SYS_open_tree, here, root, 1),
            "fsopen" => libc::syscall(libc::SYS_fsopen, tmpfs, 0),
            "bpf" => libc::syscall(libc::SYS_bpf, 0, zeros.as_ptr(), 64),
            "perf-event" => libc::syscall(libc::SYS_perf_event_open, zeros.as_ptr(), 0, -1, -1, 0),
            "userfaultfd" => libc::syscall(libc::SYS_userfaultfd, 0),
            "io-uring" => libc::syscall(libc::SYS_io_uring_setup, 8, zeros.as_ptr()),
            "keyctl" => libc::syscall(libc::SYS_keyctl, 0, -3, 1),
            "init-module" => libc::syscall(libc::SYS_init_module, zeros.as_ptr(), 1, c"".as_ptr()),
            "kexec" => libc::syscall(libc::SYS_kexec_load, 0, 0, none, 0),
            "open-by-handle" => libc::syscall(libc::SYS_open_by_handle_at, here, zeros.as_ptr(), 0),
            "swapon" => libc::syscall(libc::SYS_swapon, tmp, 0),
            "syslog" => libc::syscall(libc::SYS_syslog, 3, zeros.as_ptr(), 64),
            // Both are set to what they are.
            "set-time" => {
                let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
                libc::gettimeofday(&mut now, std::ptr::null_mut());
                libc::syscall(libc::SYS_settimeofday, &raw const now, none)
            }
            "set-hostname" => {
                let mut name = [0u8; 256];
                libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1);
                let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
                libc::syscall(libc::SYS_sethostname, name.as_ptr(), length)
            }
            // Of the magic numbers one is wrong, so that nothing happens where it is allowed.
            "reboot" => libc::syscall(libc::SYS_reboot, 0xfee1_deadu32, 1, 0, none),
            "ptrace-first" => libc::syscall(libc::SYS_ptrace, 0x4206, 1, 0, 0),
            "read-first" => {
                let local = [zeros.as_ptr() as usize, 8];
                let remote = [0x40_0000usize, 8];
                libc::syscall(libc::SYS_process_vm_readv, 1, local.as_ptr(), 1, remote.as_ptr(), 1, 0)
            }
            "char-device" => device(libc::S_IFCHR, libc::makedev(1, 1)),
            "block-device" => device(libc::S_IFBLK, libc::makedev(7, 0)),
            "chroot" => libc::chroot(tmp).into(),
            "set-uid" => libc::setuid(0).into(),
            "nice" => libc::setpriority(libc::PRIO_PROCESS, 0, -5).into(),
            "raise-files" => {
                let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit).into()
            }
            _ => return None,
        }
    };
    Some(checked(result))
}

/// Mounts on a new directory, and undoes it.
unsafe fn own_directory(mount: impl Fn(*const libc::c_char) -> libc::c_long) -> libc::c_long {
    let at = c"/tmp/.probe-mount".as_ptr();
    // SAFETY: the path is a string of its own.
    unsafe {
        libc::mkdir(at, 0o700);
        let result = mount(at);
        let errno = *libc::__errno_location();
        if result == 0 {
            libc::umount2(at, libc::MNT_DETACH);
        }
        libc::rmdir(at);
        *libc::__errno_location() = errno;
        result
    }
}

/// A device node, removed again at once.
unsafe fn device(kind: libc::mode_t, number: libc::dev_t) -> libc::c_long {
    let path = c"/tmp/.probe-device".as_ptr();
    // SAFETY: the path is a string of its own.
    unsafe {
        let made = libc::mknod(path, kind | 0o600, number);
        let errno = *libc::__errno_location();
        if made == 0 {
            // A node alone says nothing: mounts can refuse devices.
            let fd = libc::open(path, libc::O_RDONLY | libc::O_NONBLOCK);
            let refused = *libc::__errno_location();
            libc::unlink(path);
            *libc::__errno_location() = refused;
            return fd.into();
        }
        *libc::__errno_location() = errno;
        made.into()
    }
}
