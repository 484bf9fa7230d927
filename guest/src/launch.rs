//! `launch`: starts programs for the server, on the host, until its standard input ends.
//!
//! A process that starts another is copied first, with all its page tables. That takes the server, with its
//! hundreds of megabytes, milliseconds in which it serves nobody; it takes this program microseconds.
//!
//! Requests come on standard input, answers go to standard output, each as a frame: its length, and so many
//! bytes. Numbers are 32 bits wide and little-endian, a *field* is a length and so many bytes.
//!
//! | request | |
//! |---|---|
//! | start | `1`, id, flags (1: no pipes), bytes to keep of each stream, *what* |
//! | kill | `2`, id |
//!
//! *What* is: field: directory, count and fields: program and arguments, count and fields: environment,
//! field: standard input.
//!
//! An answer is: id, how it ended (0: exited, 1: by a signal, 2: not started), the code, signal or errno,
//! field: standard output, field: standard error. The first answer has the id 0 and says that requests can
//! come.
//!
//! What was started goes on if this program ends.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys;

const START: u8 = 1;
const KILL: u8 = 2;
const NO_PIPES: u32 = 1;
const MAX_FRAME: usize = 16 << 20;
const STACK_BYTES: usize = 128 << 10;
const CHUNK: usize = 16 << 10;

struct Request {
    id: u32,
    pipes: bool,
    keep: usize,
    directory: OsString,
    program: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Vec<u8>,
}

enum Outcome {
    Exited(i32),
    Signalled(i32),
    NotStarted(i32),
}

/// One program that was asked for. `pid` is there from its start until it is reaped, so that a signal never
/// reaches another process with its number.
struct Job {
    state: Mutex<State>,
    /// Ends the wait for output.
    wake: OwnedFd,
}

#[derive(Default)]
struct State {
    pid: Option<i32>,
    killed: bool,
}

type Jobs = Arc<Mutex<HashMap<u32, Arc<Job>>>>;

/// Serves until standard input ends. Fails if what comes is not a request.
pub fn run() -> Result<(), String> {
    let jobs = Jobs::default();
    answer(0, Outcome::Exited(0), &[], &[]).map_err(|error| format!("Cannot answer: {error}"))?;
    let mut input = io::stdin().lock();
    while let Some(frame) = read_frame(&mut input).map_err(|error| format!("Cannot read: {error}"))? {
        let mut fields = Fields(&frame);
        let kind = fields.byte().ok_or("An empty request")?;
        let id = fields.number().ok_or("A request without an id")?;
        match kind {
            START => start(&jobs, fields.request(id).ok_or("A request that is cut off")?)?,
            KILL => kill(&jobs, id),
            _ => return Err(format!("No request is of kind {kind}")),
        }
    }
    Ok(())
}

fn start(jobs: &Jobs, request: Request) -> Result<(), String> {
    let wake = sys::eventfd().map_err(|errno| format!("Cannot make an event: {errno}"))?;
    let job = Arc::new(Job { state: Mutex::default(), wake });
    locked(jobs).insert(request.id, job.clone());
    let jobs = jobs.clone();
    let work = move || {
        let id = request.id;
        let (outcome, output, errors) = carry_out(request, &job);
        locked(&jobs).remove(&id);
        // Without a reader there is nobody to answer.
        let _ = answer(id, outcome, &output, &errors);
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    thread.map(|_| ()).map_err(|error| format!("Cannot start a thread: {error}"))
}

fn kill(jobs: &Jobs, id: u32) {
    let Some(job) = locked(jobs).get(&id).cloned() else { return };
    let mut state = locked(&job.state);
    state.killed = true;
    if let Some(pid) = state.pid {
        // SAFETY: the process was not reaped, so the number is its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    sys::poke(job.wake.as_raw_fd());
}

fn carry_out(request: Request, job: &Job) -> (Outcome, Vec<u8>, Vec<u8>) {
    let mut child = match spawn(&request) {
        Ok(child) => child,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            return (Outcome::NotStarted(errno), Vec::new(), Vec::new());
        }
    };
    let pid = child.id() as i32;
    {
        let mut state = locked(&job.state);
        state.pid = Some(pid);
        if state.killed {
            // SAFETY: it is our child, which was not reaped.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
    let (output, errors) = collect(&mut child, &request, job);
    await_end(pid);
    let mut state = locked(&job.state);
    state.pid = None;
    let outcome = match child.wait() {
        Ok(status) => match status.code() {
            Some(code) => Outcome::Exited(code),
            None => Outcome::Signalled(status.signal().unwrap_or(libc::SIGKILL)),
        },
        Err(error) => Outcome::NotStarted(error.raw_os_error().unwrap_or(libc::ECHILD)),
    };
    (outcome, output, errors)
}

fn spawn(request: &Request) -> io::Result<Child> {
    let (program, arguments) = request.program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let pipe = || if request.pipes { Stdio::piped() } else { Stdio::null() };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(request.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(if request.input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(pipe()).stderr(pipe());
    if !request.directory.is_empty() {
        command.current_dir(&request.directory);
    }
    command.spawn()
}

/// Writes its input and reads its output until both of its streams end, or until it is killed: a process that
/// it left behind may hold them open.
fn collect(child: &mut Child, request: &Request, job: &Job) -> (Vec<u8>, Vec<u8>) {
    let mut outputs: [(Option<OwnedFd>, Vec<u8>); 2] = [
        (child.stdout.take().map(OwnedFd::from), Vec::new()),
        (child.stderr.take().map(OwnedFd::from), Vec::new()),
    ];
    let mut input = child.stdin.take().map(OwnedFd::from);
    if let Some(fd) = &input {
        let _ = sys::nonblocking(fd);
    }
    let mut written = 0;
    while outputs.iter().any(|(fd, _)| fd.is_some()) || input.is_some() {
        let fd = |fd: &Option<OwnedFd>| fd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut polled = [
            poll_fd(job.wake.as_raw_fd(), libc::POLLIN),
            poll_fd(fd(&outputs[0].0), libc::POLLIN),
            poll_fd(fd(&outputs[1].0), libc::POLLIN),
            poll_fd(fd(&input), libc::POLLOUT),
        ];
        // SAFETY: the array lives for the call.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, -1) };
        if locked(&job.state).killed {
            break;
        }
        for (at, (fd, kept)) in outputs.iter_mut().enumerate() {
            if polled[at + 1].revents != 0 && !take_some(fd.as_ref(), kept, request.keep) {
                *fd = None;
            }
        }
        if polled[3].revents != 0 {
            match input.as_ref().map(|fd| sys::write(fd.as_raw_fd(), &request.input[written..])) {
                Some(Ok(count)) => written += count.unwrap_or(0),
                // A program need not read all of it.
                _ => written = request.input.len(),
            }
            if written == request.input.len() {
                input = None;
            }
        }
    }
    let [(_, output), (_, errors)] = outputs;
    (output, errors)
}

/// Reads once, and keeps no more than asked for. False at the end.
fn take_some(fd: Option<&OwnedFd>, kept: &mut Vec<u8>, keep: usize) -> bool {
    let Some(fd) = fd else { return false };
    let mut chunk = [0; CHUNK];
    match sys::read(fd.as_raw_fd(), &mut chunk) {
        Ok(Some(0)) | Err(_) => false,
        Ok(count) => {
            let count = count.unwrap_or(0).min(keep - kept.len());
            kept.extend_from_slice(&chunk[..count]);
            true
        }
    }
}

fn poll_fd(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits until the process has ended, and leaves it to be reaped.
fn await_end(pid: i32) {
    loop {
        // SAFETY: all zeros is a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the value lives for the call.
        let result =
            unsafe { libc::waitid(libc::P_PID, pid as u32, &mut info, libc::WEXITED | libc::WNOWAIT) };
        if result == 0 || sys::errno() != libc::EINTR {
            return;
        }
    }
}

fn answer(id: u32, outcome: Outcome, output: &[u8], errors: &[u8]) -> io::Result<()> {
    let (how, number) = match outcome {
        Outcome::Exited(code) => (0u8, code),
        Outcome::Signalled(signal) => (1, signal),
        Outcome::NotStarted(errno) => (2, errno),
    };
    let mut frame = vec![0; 4];
    frame.extend(id.to_le_bytes());
    frame.push(how);
    frame.extend(number.to_le_bytes());
    for field in [output, errors] {
        frame.extend((field.len() as u32).to_le_bytes());
        frame.extend(field);
    }
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    let mut stdout = io::stdout().lock();
    stdout.write_all(&frame)?;
    stdout.flush()
}

/// `None` where the input ends between two frames.
fn read_frame(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if input.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    input.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut frame = vec![0; length];
    input.read_exact(&mut frame)?;
    Ok(Some(frame))
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn field(&mut self) -> Option<Vec<u8>> {
        let length = self.number()? as usize;
        let field = self.0.get(..length)?.to_vec();
        self.0 = &self.0[length..];
        Some(field)
    }

    fn list(&mut self) -> Option<Vec<OsString>> {
        let count = self.number()?;
        (0..count).map(|_| self.field().map(OsString::from_vec)).collect()
    }

    fn request(mut self, id: u32) -> Option<Request> {
        Some(Request {
            id,
            pipes: self.number()? & NO_PIPES == 0,
            keep: self.number()? as usize,
            directory: OsString::from_vec(self.field()?),
            program: self.list()?,
            environment: self.list()?.iter().filter_map(|pair| variable(pair)).collect(),
            input: self.field()?,
        })
    }
}

fn variable(pair: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = pair.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    Some((OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_back() {
        let mut bytes = Vec::new();
        for number in [NO_PIPES, 7, 1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(b"/");
        for (count, field) in [(2u32, "true"), (1, "A=b=c")] {
            bytes.extend(count.to_le_bytes());
            for _ in 0..count {
                bytes.extend((field.len() as u32).to_le_bytes());
                bytes.extend(field.as_bytes());
            }
        }
        bytes.extend(0u32.to_le_bytes());
        let request = Fields(&bytes).request(3).unwrap();
        assert_eq!((request.id, request.pipes, request.keep), (3, false, 7));
        assert_eq!(request.directory, "/");
        assert_eq!(request.program, ["true", "true"]);
        assert_eq!(request.environment, [(OsString::from("A"), OsString::from("b=c"))]);
        for length in 0..bytes.len() {
            assert!(Fields(&bytes[..length]).request(3).is_none());
        }
    }

    #[test]
    fn an_input_that_ends_within_a_frame_is_an_error() {
        assert!(read_frame(&mut &b""[..]).unwrap().is_none());
        assert!(read_frame(&mut &b"\x02\0\0\0a"[..]).is_err());
        assert!(read_frame(&mut &b"\xff\xff\xff\xff"[..]).is_err());
        assert_eq!(read_frame(&mut &b"\x01\0\0\0a"[..]).unwrap().unwrap(), b"a");
    }
}
