//! One command: its streams, its log and its end.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::poller::{Poller, Token};
use crate::sys;
use crate::value::Value;

use super::output_log::OutputLog;
use super::request::{ExecRequest, Program};

/// What an argument costs beside its bytes.
const ARGUMENT_HEAD: usize = 5;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It timed out.
    TimedOut,
    /// It ran out of memory.
    OomKilled,
}

impl End {
    /// The `kind`, `code` and `signal` of the protocol.
    pub fn entries(self) -> Vec<(String, Value)> {
        let (kind, detail) = match self {
            End::Exited(code) => ("exited", Some(("code", code))),
            End::Signalled(signal) => ("signalled", Some(("signal", signal))),
            End::TimedOut => ("timed_out", None),
            End::OomKilled => ("oom_killed", None),
        };
        let mut entries = vec![("kind".to_owned(), kind.into())];
        entries.extend(detail.map(|(key, n)| (key.to_owned(), i64::from(n).into())));
        entries
    }
}

/// A pipe or terminal that the command writes to.
pub struct Output {
    /// Our end.
    pub fd: OwnedFd,
    /// 1 stdout, 2 stderr, 3 pty.
    pub channel: u8,
    paused: bool,
    widened: bool,
}

/// Bytes that wait to be written to the command, and the stream that they came from.
struct Input {
    stream: u32,
    bytes: Vec<u8>,
    at: usize,
}

/// Standard input, or the keyboard of a terminal.
pub struct Stdin {
    fd: OwnedFd,
    queue: VecDeque<Input>,
    close: bool,
    watched: bool,
}

/// One command.
pub struct Command {
    /// Its id, chosen by the server.
    pub id: String,
    /// The request, to explain a failed start.
    pub request: ExecRequest,
    /// 0 until it is started.
    pub pid: i32,
    /// Its supervisor process.
    pub supervisor: i32,
    /// When, in milliseconds since the epoch.
    pub started_at_ms: i64,
    /// Its output.
    pub log: OutputLog,
    /// Streams that read it.
    pub readers: Vec<u32>,
    /// Pipes or terminal that it still writes to.
    pub outputs: Vec<Output>,
    /// Pipe or terminal that it still reads.
    pub stdin: Option<Stdin>,
    /// The exit status of its own process; there may be output left to read.
    pub status: Option<i32>,
    /// It is over.
    pub end: Option<End>,
    /// It timed out.
    pub timed_out: bool,
    /// SIGKILL was sent through the guest.
    pub killed: bool,
    /// The memory guard killed it.
    pub guarded: bool,
    /// Out-of-memory kills by the kernel before its start.
    pub oom_kills_before: u64,
    /// Signals that came before its process existed.
    pub early_signals: Vec<i32>,
}

/// The result of one read.
pub enum Progress {
    /// There is nothing more now.
    Empty,
    /// There may be more.
    More,
    /// The log is full.
    Full,
    /// No writer is left.
    Closed,
}

impl Output {
    /// Watches our end.
    pub fn new(fd: OwnedFd, channel: u8, key: u64, poller: &Poller) -> Result<Output, i32> {
        poller.add(fd.as_raw_fd(), Token::Command(key, channel), true, false)?;
        Ok(Output { fd, channel, paused: false, widened: false })
    }

    /// Reads one piece into the log.
    pub fn read(&mut self, log: &mut OutputLog, buffer: &mut [u8], whatever: bool) -> Progress {
        if !whatever && !log.has_room() {
            return Progress::Full;
        }
        match sys::read(self.fd.as_raw_fd(), buffer) {
            Ok(Some(0)) | Err(_) => Progress::Closed,
            Ok(None) => Progress::Empty,
            Ok(Some(n)) => {
                log.push(self.channel, &buffer[..n]);
                if n >= 65_536 && !self.widened && self.channel != 3 {
                    // A wider pipe saves a command that writes this much many context switches. Without the
                    // right it keeps its pipe.
                    self.widened = true;
                    // SAFETY: no pointers.
                    unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
                }
                if n < buffer.len() && self.channel != 3 && n < 4096 {
                    Progress::Empty
                } else {
                    Progress::More
                }
            }
        }
    }

    /// Stops watching while the log is full.
    pub fn pause(&mut self, poller: &Poller) {
        if !self.paused {
            poller.remove(self.fd.as_raw_fd());
            self.paused = true;
        }
    }

    /// Watches again.
    pub fn resume(&mut self, key: u64, poller: &Poller) {
        if self.paused
            && poller.add(self.fd.as_raw_fd(), Token::Command(key, self.channel), true, false).is_ok()
        {
            self.paused = false;
        }
    }
}

impl Stdin {
    /// Nothing is written yet.
    pub fn new(fd: OwnedFd) -> Stdin {
        Stdin { fd, queue: VecDeque::new(), close: false, watched: false }
    }

    /// Adds bytes from a stream.
    pub fn push(&mut self, stream: u32, bytes: Vec<u8>) {
        if !self.close {
            self.queue.push_back(Input { stream, bytes, at: 0 });
        }
    }

    /// Closes when all is written. A terminal cannot be closed from this side: it gets its end-of-file
    /// character.
    pub fn close(&mut self, pty: bool) {
        if pty && !self.close {
            self.queue.push_back(Input { stream: 0, bytes: vec![4], at: 0 });
        } else {
            self.close = true;
        }
    }

    /// Writes what the command takes and calls `taken` for it; false when this side is finished.
    pub fn write(&mut self, key: u64, poller: &Poller, mut taken: impl FnMut(u32, usize)) -> bool {
        while let Some(input) = self.queue.front_mut() {
            match sys::write(self.fd.as_raw_fd(), &input.bytes[input.at..]) {
                Ok(Some(n)) => {
                    taken(input.stream, n);
                    input.at += n;
                    if input.at >= input.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Ok(None) => {
                    if !self.watched {
                        self.watched =
                            poller.add(self.fd.as_raw_fd(), Token::Command(key, 0), false, true).is_ok();
                    }
                    return true;
                }
                Err(_) => {
                    self.queue.drain(..).for_each(|input| taken(input.stream, input.bytes.len() - input.at));
                    return false;
                }
            }
        }
        if self.watched {
            poller.remove(self.fd.as_raw_fd());
            self.watched = false;
        }
        !self.close
    }
}

impl Command {
    /// The terminal, if it has one that is still open.
    pub fn pty(&self) -> Option<&OwnedFd> {
        self.outputs.iter().find(|output| output.channel == 3).map(|output| &output.fd)
    }

    /// The output with that channel.
    pub fn output(&mut self, channel: u8) -> Option<&mut Output> {
        self.outputs.iter_mut().find(|output| output.channel == channel)
    }

    /// No process writes to it any more.
    pub fn close_output(&mut self, channel: u8) {
        self.outputs.retain(|output| output.channel != channel);
    }

    /// Takes the output descriptors of an ended command; children that it left behind may still write to
    /// them.
    pub fn take_outputs(&mut self) -> Vec<OwnedFd> {
        self.outputs.drain(..).map(|output| output.fd).collect()
    }

    /// Its entry in the list of commands, with `room` bytes for its arguments.
    pub fn describe(&self, room: usize) -> Value {
        let argv = match &self.request.program {
            Program::Argv(argv) => shortened(argv.iter().map(Vec::as_slice), room),
            Program::Shell(script) => shortened([&b"/bin/sh"[..], b"-c", script].into_iter(), room),
        };
        let mut entries = vec![
            ("id".to_owned(), Value::Text(self.id.clone())),
            ("pid".to_owned(), i64::from(self.pid).into()),
            ("argv".to_owned(), Value::Array(argv)),
            ("pty".to_owned(), self.request.pty.is_some().into()),
            ("startedAtMs".to_owned(), self.started_at_ms.into()),
            ("outputBytes".to_owned(), (self.log.total() as i64).into()),
            ("keptFrom".to_owned(), (self.log.kept_from() as i64).into()),
        ];
        if let Some(end) = self.end {
            entries.extend(end.entries());
        }
        Value::Map(entries)
    }
}

/// As many arguments as fit; the last one is cut and marked.
fn shortened<'a>(argv: impl Iterator<Item = &'a [u8]>, mut room: usize) -> Vec<Value> {
    let mut shown = Vec::new();
    for argument in argv {
        let size = argument.len() + ARGUMENT_HEAD;
        if size > room {
            let cut = &argument[..room.saturating_sub(ARGUMENT_HEAD).min(argument.len())];
            // Not in the middle of a character.
            let whole = match std::str::from_utf8(cut) {
                Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
                _ => cut,
            };
            shown.push(Value::name(&[whole, "…".as_bytes()].concat()));
            break;
        }
        room -= size;
        shown.push(Value::name(argument));
    }
    shown
}

/// Discards what children of an ended command write; false when no writer is left.
pub fn discard(fd: RawFd, buffer: &mut [u8]) -> bool {
    !matches!(sys::read(fd, buffer), Ok(Some(0)) | Err(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_far_as_there_is_room() {
        let show = |argv: &[&[u8]], room| shortened(argv.iter().copied(), room);
        assert_eq!(show(&[b"echo", b"a"], 100), ["echo".into(), "a".into()]);
        assert_eq!(show(&[b"echo", b"abcdefgh", b"never"], 9 + 5 + 3), ["echo".into(), "abc…".into()]);
        assert_eq!(show(&["äöü".as_bytes()], 5 + 3), ["ä…".into()]);
        assert_eq!(show(&[b"\xff\xfe\xfd"], 5 + 2), [Value::Bytes(b"\xff\xfe\xe2\x80\xa6".to_vec())]);
        assert_eq!(show(&[b"echo"], 0), ["…".into()]);
    }
}
