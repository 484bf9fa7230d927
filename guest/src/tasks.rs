//! File operations and tools, each on a thread of its own with the rights of its user.
//!
//! The loop and a thread share a mailbox: received data, data to send, credit. A thread waits on its mailbox
//! and never touches the connection; the loop never waits.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::failure::Failure;
use crate::files;
use crate::sys;
use crate::task::{Stopped, TaskStream};
use crate::tools;
use crate::transport::connection::{Connection, GRANT, WIDE_GRANT};
use crate::transport::frame::{Header, INITIAL_CREDIT, Kind, MAX_DATA};
use crate::users::{self, Identity};
use crate::value::Value;

const MAX_THREADS: usize = 128;
const MAX_WAITING: usize = 1024;
const STACK: usize = 128 * 1024;
/// What a thread may put into its mailbox before the loop has taken it.
const OUTBOX: usize = 262_144;

/// Notifies the loop that a mailbox has changed.
pub struct Notifier {
    fd: RawFd,
    notified: AtomicBool,
    streams: Mutex<Vec<u32>>,
    finished: AtomicUsize,
}

impl Notifier {
    /// `fd` is an event descriptor of the loop.
    pub fn new(fd: RawFd) -> Arc<Notifier> {
        Arc::new(Notifier {
            fd,
            notified: AtomicBool::new(false),
            streams: Mutex::new(Vec::new()),
            finished: AtomicUsize::new(0),
        })
    }

    fn notify(&self, stream: u32) {
        lock(&self.streams).push(stream);
        if !self.notified.swap(true, Ordering::AcqRel) {
            sys::poke(self.fd);
        }
    }

    /// The streams whose mailbox has changed since the last call.
    pub fn take(&self) -> Vec<u32> {
        self.notified.store(false, Ordering::Release);
        std::mem::take(&mut *lock(&self.streams))
    }
}

/// A thread that panics ends the guest (`panic = "abort"`), so a poisoned lock is not met.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct State {
    inbox: VecDeque<Vec<u8>>,
    they_ended: bool,
    gone: bool,
    gone_fd: Option<OwnedFd>,
    outbox: Vec<(Vec<u8>, usize)>,
    outbox_bytes: usize,
    credit: i64,
    taken: usize,
    /// So many taken bytes are reported to the loop at once.
    report: usize,
    result: Option<Result<(), Failure>>,
}

/// What the loop and one thread share.
pub struct Mailbox {
    stream: u32,
    state: Mutex<State>,
    changed: Condvar,
    notifier: Arc<Notifier>,
}

impl Mailbox {
    /// DATA from the server.
    pub fn data(&self, bytes: Vec<u8>) {
        lock(&self.state).inbox.push_back(bytes);
        self.changed.notify_one();
    }

    /// END from the server.
    pub fn ended(&self) {
        lock(&self.state).they_ended = true;
        self.changed.notify_one();
    }

    /// The stream or the connection is gone.
    pub fn gone(&self) {
        let mut state = lock(&self.state);
        state.gone = true;
        state.inbox.clear();
        state.outbox.clear();
        if let Some(fd) = &state.gone_fd {
            sys::poke(fd.as_raw_fd());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Credit from the server.
    pub fn credit(&self, amount: u32) {
        let mut state = lock(&self.state);
        state.credit += i64::from(amount);
        drop(state);
        self.changed.notify_one();
    }

    /// Moves what the thread has written to the connection; true when the stream is done.
    pub fn collect(&self, connection: &mut Connection) -> bool {
        let mut state = lock(&self.state);
        let outbox = std::mem::take(&mut state.outbox);
        let was_full = state.outbox_bytes >= OUTBOX;
        state.outbox_bytes = 0;
        let taken = std::mem::take(&mut state.taken);
        let result = state.result.take();
        drop(state);
        if was_full {
            self.changed.notify_one();
        }
        for (frame, payload) in outbox {
            connection.encoded(self.stream, frame, payload);
        }
        if taken > 0 && connection.taken_fast(self.stream, taken) {
            lock(&self.state).report = WIDE_GRANT as usize;
        }
        match result {
            None => false,
            Some(Ok(())) => {
                connection.end(self.stream);
                true
            }
            Some(Err(failure)) => {
                connection.reset(self.stream, &failure);
                true
            }
        }
    }
}

/// The thread's side.
struct Side(Arc<Mailbox>);

impl Side {
    fn frame(&self, kind: Kind, payload: &[u8]) -> Result<(), Stopped> {
        let header = Header { length: payload.len(), kind, channel: 0, stream: self.0.stream };
        let mut frame = Vec::with_capacity(crate::transport::frame::HEADER + payload.len());
        frame.extend_from_slice(&header.encode());
        frame.extend_from_slice(payload);
        let mut state = lock(&self.0.state);
        while !state.gone && (state.credit <= 0 || state.outbox_bytes >= OUTBOX) {
            state = self.0.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if state.gone {
            return Err(Stopped::Gone);
        }
        state.credit -= payload.len() as i64;
        state.outbox_bytes += frame.len();
        let first = state.outbox.is_empty();
        state.outbox.push((frame, payload.len()));
        drop(state);
        if first {
            self.0.notifier.notify(self.0.stream);
        }
        Ok(())
    }
}

impl TaskStream for Side {
    fn send(&mut self, message: &Value) -> Result<(), Stopped> {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        if payload.len() > crate::transport::frame::MAX_PAYLOAD {
            return Err(Failure::new("resource_exhausted", "The answer is too long for one frame").into());
        }
        self.frame(Kind::Message, &payload)
    }

    fn send_data(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        bytes.chunks(MAX_DATA).try_for_each(|piece| self.frame(Kind::Data, piece))
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, Stopped> {
        let mut state = lock(&self.0.state);
        loop {
            if state.gone {
                return Err(Stopped::Gone);
            }
            if let Some(bytes) = state.inbox.pop_front() {
                let before = state.taken;
                state.taken += bytes.len();
                let grant = before < state.report && state.taken >= state.report;
                drop(state);
                if grant {
                    self.0.notifier.notify(self.0.stream);
                }
                return Ok(Some(bytes));
            }
            if state.they_ended {
                return Ok(None);
            }
            state = self.0.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn gone(&self) -> RawFd {
        let mut state = lock(&self.0.state);
        if state.gone_fd.is_none() {
            state.gone_fd = sys::eventfd().ok();
            if let (true, Some(fd)) = (state.gone, &state.gone_fd) {
                sys::poke(fd.as_raw_fd());
            }
        }
        state.gone_fd.as_ref().map_or(-1, |fd| fd.as_raw_fd())
    }
}

struct Job {
    mailbox: Arc<Mailbox>,
    op: String,
    request: Value,
    user: Identity,
}

/// The threads.
pub struct Tasks {
    /// Rung by the threads.
    pub notifier: Arc<Notifier>,
    running: usize,
    waiting: VecDeque<Job>,
}

impl Tasks {
    /// No threads yet.
    pub fn new(notifier: Arc<Notifier>) -> Tasks {
        Tasks { notifier, running: 0, waiting: VecDeque::new() }
    }

    /// Runs a file operation.
    pub fn start(&mut self, stream: u32, op: &str, request: Value) -> Result<Arc<Mailbox>, Failure> {
        let user = users::lookup(request.text("user").unwrap_or("root"))?;
        if self.waiting.len() >= MAX_WAITING {
            return Err(Failure::new("resource_exhausted", "Too many file operations wait"));
        }
        let state = State {
            inbox: VecDeque::new(),
            they_ended: false,
            gone: false,
            gone_fd: None,
            outbox: Vec::new(),
            outbox_bytes: 0,
            credit: INITIAL_CREDIT,
            taken: 0,
            report: GRANT as usize,
            result: None,
        };
        let mailbox = Arc::new(Mailbox {
            stream,
            state: Mutex::new(state),
            changed: Condvar::new(),
            notifier: self.notifier.clone(),
        });
        self.waiting.push_back(Job { mailbox: mailbox.clone(), op: op.to_owned(), request, user });
        self.start_waiting();
        Ok(mailbox)
    }

    /// Counts the threads that are done and starts what waits for them.
    pub fn sweep(&mut self) {
        self.running = self.running.saturating_sub(self.notifier.finished.swap(0, Ordering::AcqRel));
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        while self.running < MAX_THREADS {
            let Some(job) = self.waiting.pop_front() else { return };
            let mailbox = job.mailbox.clone();
            let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || run(job));
            match thread {
                Ok(_) => self.running += 1,
                Err(_) => {
                    lock(&mailbox.state).result =
                        Some(Err(Failure::new("resource_exhausted", "No thread can be started")));
                    mailbox.notifier.notify(mailbox.stream);
                }
            }
        }
    }
}

fn run(job: Job) {
    let mailbox = job.mailbox;
    let gone = lock(&mailbox.state).gone;
    let result = if gone {
        Err(Stopped::Gone)
    } else if !tools::handles(&job.op) && job.request.flag("reach") && job.user.uid != 0 && is_root() {
        files::run_reaching(&job.op, &job.request, job.user, &mut Side(mailbox.clone()))
    } else {
        become_user(&job.user)
            .map_err(|errno| {
                Stopped::Failed(Failure::from_errno(errno, "act as the user").with("what", "user"))
            })
            .and_then(|()| {
                let mut side = Side(mailbox.clone());
                if tools::handles(&job.op) {
                    tools::run(&job.request, &mut side)
                } else {
                    files::run(&job.op, &job.request, &mut side)
                }
            })
    };
    let result = match result {
        Ok(()) => Ok(()),
        Err(Stopped::Failed(failure)) => Err(failure),
        Err(Stopped::Gone) => Err(Failure::new("cancelled", "The stream is gone")),
    };
    lock(&mailbox.state).result = Some(result);
    mailbox.notifier.finished.fetch_add(1, Ordering::AcqRel);
    mailbox.notifier.notify(mailbox.stream);
}

fn is_root() -> bool {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() == 0 }
}

/// Takes a user's identity for this thread alone: the C library's functions would change all threads, the
/// system calls do not.
fn become_user(user: &Identity) -> Result<(), i32> {
    // SAFETY: the groups live for the call.
    unsafe {
        if !is_root() {
            return if libc::geteuid() == user.uid { Ok(()) } else { Err(libc::EPERM) };
        }
        let (uid, gid) = (user.uid, user.gid);
        if libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()) < 0
            || libc::syscall(libc::SYS_setresgid, gid, gid, gid) < 0
            || (uid != 0 && libc::syscall(libc::SYS_setresuid, uid, uid, uid) < 0)
        {
            return Err(sys::errno());
        }
    }
    Ok(())
}
