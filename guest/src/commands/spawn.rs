//! Preparing a start: everything that the supervisor and the new process need is laid out in advance, because
//! they cannot allocate.

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::failure::Failure;
use crate::sys;

use super::pty;
use super::request::{ExecRequest, Program};
use super::supervisor::{self, AREA, Candidate, Shared, phase, step};

/// Memory for one supervisor; kept for the next one when it is done.
pub struct Area(*mut u8);

// SAFETY: an area is used by one command at a time.
unsafe impl Send for Area {}

impl Area {
    fn new() -> Result<Area, i32> {
        // SAFETY: fresh memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                AREA,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED { Err(sys::errno()) } else { Ok(Area(at.cast())) }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: filled before the area is handed out.
        unsafe { &*self.0.cast::<Shared>() }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the supervisor is gone, or was never started.
        unsafe { libc::munmap(self.0.cast(), AREA) };
    }
}

/// What the new process reads until it has called `execve`.
struct Plan {
    _strings: Vec<Vec<u8>>,
    _arrays: Vec<Vec<*const u8>>,
    _candidates: Vec<Candidate>,
    _groups: Vec<u32>,
    _theirs: Vec<OwnedFd>,
}

/// Our ends of a command's streams.
#[derive(Default)]
pub struct Streams {
    /// Standard input, if it is a pipe.
    pub stdin: Option<OwnedFd>,
    /// Standard output.
    pub stdout: Option<OwnedFd>,
    /// Standard error.
    pub stderr: Option<OwnedFd>,
    /// The terminal.
    pub pty: Option<OwnedFd>,
}

/// A started supervisor.
pub struct Supervisor {
    /// Its process.
    pub pid: i32,
    area: Area,
    plan: Option<Plan>,
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not yet decided.
    Starting,
    /// It runs, with this pid.
    Running(i32),
    /// It could not be started: step and errno.
    Failed(i32, i32),
    /// Its own process is over: pid and status.
    Ended(i32, i32),
}

impl Supervisor {
    /// How far the command is. Frees what only the start needed.
    pub fn phase(&mut self) -> Phase {
        let shared = self.area.shared();
        let phase = match shared.phase.load(Ordering::Acquire) {
            phase::RUNNING => Phase::Running(shared.pid.load(Ordering::Relaxed)),
            phase::FAILED => {
                Phase::Failed(shared.step.load(Ordering::Relaxed), shared.errno.load(Ordering::Relaxed))
            }
            phase::ENDED => {
                Phase::Ended(shared.pid.load(Ordering::Relaxed), shared.status.load(Ordering::Relaxed))
            }
            _ => Phase::Starting,
        };
        if phase != Phase::Starting {
            self.plan = None;
        }
        phase
    }
}

impl Supervisor {
    /// The new process, also before its start is known.
    pub fn early_pid(&self) -> Option<i32> {
        Some(self.area.shared().pid.load(Ordering::Acquire)).filter(|pid| *pid > 0)
    }

    /// How far the command is when the supervisor is over. One that was killed from inside leaves its command
    /// to the guest, perhaps before it could report the start, or after it has taken the command's status.
    pub fn last_phase(&mut self) -> Phase {
        let pid = match (self.phase(), self.early_pid()) {
            (Phase::Running(pid), _) | (Phase::Starting, Some(pid)) => pid,
            (Phase::Starting, None) => return Phase::Failed(step::CLONE, libc::EIO),
            (phase, _) => return phase,
        };
        // SAFETY: the supervisor is over, so nobody writes; it is zeroed or filled by a wait.
        let waited = unsafe { &*self.area.shared().waited.get() };
        // SAFETY: as above.
        if unsafe { waited.si_pid() } == pid {
            Phase::Ended(pid, supervisor::wait_status(waited))
        } else {
            Phase::Running(pid)
        }
    }
}

/// What stays the same for all commands.
pub struct Spawner {
    poke: RawFd,
    nofile: [u64; 2],
    /// Limit on open files of a process, where the runtime could not set it.
    pub open_files: Option<u64>,
    /// Limit on processes of a user, where the guest enforces it.
    pub processes: Option<u64>,
    is_root: bool,
    null: OwnedFd,
    spare: Vec<Area>,
}

const SPARE_AREAS: usize = 4;

impl Spawner {
    /// `poke` is the event descriptor that tells the loop; `nofile` the limit that commands get.
    pub fn new(poke: RawFd, nofile: [u64; 2]) -> Result<Spawner, i32> {
        // SAFETY: a constant string; no pointers.
        let (null, is_root) = unsafe {
            (libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC), libc::geteuid() == 0)
        };
        Ok(Spawner {
            poke,
            nofile,
            open_files: None,
            processes: None,
            is_root,
            null: sys::owned(null)?,
            spare: Vec::new(),
        })
    }

    /// Starts a command. Whether it could be started is known when its phase is no longer `Starting`.
    pub fn start(&mut self, request: &ExecRequest) -> Result<(Supervisor, Streams), Failure> {
        let user = &request.user;
        // SAFETY: no pointers.
        let me = unsafe { (libc::geteuid(), libc::getegid()) };
        if !self.is_root && (user.uid, user.gid) != me {
            return Err(Failure::new(
                "permission_denied",
                "The guest is not root and cannot act as another user",
            )
            .with("exitCode", 126));
        }
        let cannot = |errno| Failure::from_errno(errno, "start a command");
        let mut ours = Streams::default();
        let mut theirs = Vec::with_capacity(3);
        let mut streams = [self.null.as_raw_fd(); 3];
        if let Some(size) = request.pty {
            let (master, slave) =
                pty::open(size, user.uid).map_err(|errno| Failure::from_errno(errno, "open a terminal"))?;
            streams = [slave.as_raw_fd(); 3];
            theirs.push(slave);
            ours.pty = Some(master);
        } else {
            if request.stdin {
                let (read, write) = sys::pipe().map_err(cannot)?;
                sys::nonblocking(&write).map_err(cannot)?;
                streams[0] = read.as_raw_fd();
                theirs.push(read);
                ours.stdin = Some(write);
            }
            for (index, slot) in [(1, &mut ours.stdout), (2, &mut ours.stderr)] {
                let (read, write) = sys::pipe().map_err(cannot)?;
                sys::nonblocking(&read).map_err(cannot)?;
                streams[index] = write.as_raw_fd();
                theirs.push(write);
                *slot = Some(read);
            }
        }

        let mut strings: Vec<Vec<u8>> = Vec::new();
        let mut text = |bytes: &[u8]| -> *const u8 {
            let mut copy = Vec::with_capacity(bytes.len() + 1);
            copy.extend_from_slice(bytes);
            copy.push(0);
            let at = copy.as_ptr();
            strings.push(copy);
            at
        };
        let cwd = text(&request.cwd);
        let mut env: Vec<*const u8> = request.env.iter().map(|entry| text(entry)).collect();
        env.push(std::ptr::null());
        let mut arrays = vec![env];
        let mut candidates = Vec::new();
        match &request.program {
            Program::Shell(script) => {
                let (dash_c, script) = (text(b"-c"), text(script));
                for shell in [&b"/bin/bash"[..], b"/bin/sh"] {
                    let shell = text(shell);
                    let argv = vec![shell, dash_c, script, std::ptr::null()];
                    candidates.push(Candidate { path: shell, argv: argv.as_ptr() });
                    arrays.push(argv);
                }
            }
            Program::Argv(arguments) => {
                let mut argv: Vec<*const u8> = arguments.iter().map(|argument| text(argument)).collect();
                argv.push(std::ptr::null());
                let name = &arguments[0];
                if name.contains(&b'/') {
                    candidates.push(Candidate { path: argv[0], argv: argv.as_ptr() });
                } else if !name.is_empty() {
                    for directory in request.path.split(|byte| *byte == b':').take(256) {
                        let directory = if directory.is_empty() { b"." } else { directory };
                        candidates.push(Candidate {
                            path: text(&[directory, b"/", name].concat()),
                            argv: argv.as_ptr(),
                        });
                    }
                }
                arrays.push(argv);
            }
        }
        candidates.push(Candidate { path: std::ptr::null(), argv: std::ptr::null() });

        let groups = user.groups.clone();
        let area = match self.spare.pop() {
            Some(area) => area,
            None => Area::new().map_err(cannot)?,
        };
        let shared = Shared {
            phase: AtomicI32::new(phase::STARTING),
            pid: AtomicI32::new(0),
            status: AtomicI32::new(0),
            // SAFETY: numbers and padding.
            waited: UnsafeCell::new(unsafe { std::mem::zeroed() }),
            step: AtomicI32::new(0),
            errno: AtomicI32::new(0),
            poke: self.poke,
            streams,
            pty: request.pty.is_some(),
            dies_with_guest: std::process::id() != 1,
            change_user: self.is_root,
            uid: user.uid,
            gid: user.gid,
            group_count: user.groups.len(),
            groups: groups.as_ptr(),
            cwd,
            candidates: candidates.as_ptr(),
            env: arrays[0].as_ptr(),
            nofile: self.open_files.map_or(self.nofile, |limit| [limit.min(self.nofile[1]); 2]),
            nproc: self.processes.map_or([libc::RLIM_INFINITY; 2], |limit| [limit; 2]),
        };
        let plan = Plan {
            _strings: strings,
            _arrays: arrays,
            _candidates: candidates,
            _groups: groups,
            _theirs: theirs,
        };
        // SAFETY: the area is ours and large enough; the plan lives in the Supervisor until the phase
        // changes.
        let pid = unsafe {
            area.0.cast::<Shared>().write(shared);
            supervisor::start(area.0)
        };
        if pid < 0 {
            return Err(cannot(-pid as i32));
        }
        Ok((Supervisor { pid: pid as i32, area, plan: Some(plan) }, ours))
    }

    /// The supervisor's process is over: its memory can serve another.
    pub fn reclaim(&mut self, mut supervisor: Supervisor) {
        if supervisor.phase() == Phase::Starting {
            // It was killed while the new process still uses this memory, so it is never reused.
            std::mem::forget(supervisor);
            return;
        }
        if self.spare.len() < SPARE_AREAS {
            self.spare.push(supervisor.area);
        }
    }
}

/// The error of a failed start.
pub fn failure(failed_step: i32, errno: i32, request: &ExecRequest) -> Failure {
    let name = match &request.program {
        Program::Argv(argv) => String::from_utf8_lossy(&argv[0]).into_owned(),
        Program::Shell(_) => "/bin/sh".to_owned(),
    };
    let cwd = String::from_utf8_lossy(&request.cwd);
    let same = |failure: Failure, code, what: &str| Failure { code, ..failure }.with("what", what);
    match (failed_step, errno) {
        (step::EXEC, libc::ENOENT | libc::ENOTDIR) => {
            let message = if name.contains('/') {
                format!("There is no program \"{name}\"")
            } else {
                format!("There is no program \"{name}\" in PATH")
            };
            Failure::new("not_found", message)
                .with("what", "command")
                .with("exitCode", 127)
                .with("errno", "ENOENT")
        }
        (
            step::EXEC,
            libc::EACCES | libc::EPERM | libc::ENOEXEC | libc::EISDIR | libc::ELOOP | libc::ETXTBSY,
        ) => same(Failure::from_errno(errno, &format!("run \"{name}\"")), "permission_denied", "command")
            .with("exitCode", 126),
        (step::EXEC, _) => Failure::from_errno(errno, &format!("run \"{name}\""))
            .with("what", "command")
            .with("exitCode", 126),
        (step::WORKDIR, libc::ENOENT | libc::ENOTDIR) => same(
            Failure::from_errno(errno, &format!("go to the working directory \"{cwd}\"")),
            "not_found",
            "workdir",
        ),
        (step::WORKDIR, _) => Failure::from_errno(errno, &format!("go to the working directory \"{cwd}\""))
            .with("what", "workdir"),
        (step::USER, _) => Failure::from_errno(errno, "act as the user").with("what", "user"),
        _ => Failure::from_errno(errno, "start a command"),
    }
}
