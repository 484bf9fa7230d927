//! All commands: the running ones, and the last ones that have ended.

pub mod command;
mod control;
pub mod output_log;
pub mod pty;
pub mod raw;
pub mod reader;
pub mod request;
pub mod spawn;
pub mod supervisor;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::context::Context;
use crate::failure::Failure;
use crate::poller::{Poller, Token};
use crate::process_table;
use crate::sys;
use crate::timers::{Timer, Timers};
use crate::value::Value;

use command::{Command, End, Output, Progress, Stdin, discard};
use output_log::OutputLog;
use request::ExecRequest;
use spawn::{Phase, Spawner, Supervisor};

/// Ended commands that are remembered.
const REMEMBERED: usize = 256;
/// Output of ended commands that is kept.
const KEPT_OUTPUT: u64 = 8 << 20;
/// Reads from one pipe before other work gets a turn.
const READS_PER_TURN: usize = 4;
/// The last output of a terminal may come a moment after its command's end.
const PTY_GRACE: Duration = Duration::from_millis(50);
/// The most that a pipe can hold when its command ends: beyond that another process writes.
const MOST_LEFT: usize = (1 << 20) + 65_536;

/// The table of commands.
pub struct Commands {
    spawner: Spawner,
    table: HashMap<u64, Command>,
    ids: HashMap<String, u64>,
    /// By process id. A supervisor outlives its command while there are children.
    supervisors: HashMap<i32, (Supervisor, u64)>,
    /// Main processes whose supervisor was killed: they are children of the guest now.
    orphans: HashMap<i32, u64>,
    /// Ended commands, oldest first.
    ended: VecDeque<u64>,
    /// Descriptors that children of ended commands may still write to.
    leftovers: HashMap<RawFd, OwnedFd>,
    /// Processes that the memory guard has killed recently, also before they were known to run.
    guard_victims: VecDeque<i32>,
    next_key: u64,
    /// Streams whose commands have output or an end to send.
    pub wake: Vec<u32>,
    /// Bytes of streams that were written into a command.
    pub taken: Vec<(u32, usize)>,
    /// Streams whose command could not be started.
    pub failed: Vec<(u32, Failure)>,
}

impl Commands {
    /// Limits the processes of a user's commands, from the next command on.
    pub fn limit_processes(&mut self, limit: Option<u64>) {
        self.spawner.processes = limit;
    }

    /// Limits the open files of a command's processes, from the next command on.
    pub fn limit_open_files(&mut self, limit: Option<u64>) {
        self.spawner.open_files = limit;
    }

    /// No commands yet.
    pub fn new(spawner: Spawner) -> Commands {
        Commands {
            spawner,
            table: HashMap::new(),
            ids: HashMap::new(),
            supervisors: HashMap::new(),
            orphans: HashMap::new(),
            ended: VecDeque::new(),
            leftovers: HashMap::new(),
            guard_victims: VecDeque::new(),
            next_key: 1,
            wake: Vec::new(),
            taken: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The key of a command.
    pub fn find(&self, id: &str) -> Option<u64> {
        self.ids.get(id).copied()
    }

    /// A command.
    pub fn get(&self, key: u64) -> Option<&Command> {
        self.table.get(&key)
    }

    fn known(&mut self, request: &Value) -> Result<(u64, &mut Command), Failure> {
        let id = request::id(request)?;
        let key = self
            .find(id)
            .ok_or_else(|| Failure::new("not_found", format!("There is no command \"{id}\"")))?;
        self.table
            .get_mut(&key)
            .map(|command| (key, command))
            .ok_or_else(|| Failure::new("internal", "A command got lost"))
    }

    /// Starts a command and returns its key.
    pub fn start(&mut self, request: ExecRequest, context: &mut Context) -> Result<u64, Failure> {
        let oom_kills_before = context.memory.oom_kills();
        let (supervisor, streams) = self.spawner.start(&request)?;
        let key = self.next_key;
        self.next_key += 1;
        let mut outputs = Vec::with_capacity(2);
        let mut stdin = streams.stdin.map(Stdin::new);
        if let Some(pty) = &streams.pty {
            stdin = pty.try_clone().ok().map(Stdin::new);
        }
        for (fd, channel) in [(streams.stdout, 1), (streams.stderr, 2), (streams.pty, 3)] {
            if let Some(fd) = fd {
                // This fails only without memory or watches; the command then runs without that output.
                outputs.extend(Output::new(fd, channel, key, &context.poller));
            }
        }
        if let Some(ms) = request.timeout_ms {
            context.timers.after(Duration::from_millis(ms), Timer::CommandTimeout(key));
        }
        let command = Command {
            id: request.id.clone(),
            log: OutputLog::new(request.keep, request.overflow),
            request,
            pid: 0,
            supervisor: supervisor.pid,
            started_at_ms: sys::now_ms(),
            readers: Vec::new(),
            outputs,
            stdin,
            status: None,
            end: None,
            timed_out: false,
            killed: false,
            guarded: false,
            oom_kills_before,
            early_signals: Vec::new(),
        };
        self.ids.insert(command.id.clone(), key);
        self.supervisors.insert(supervisor.pid, (supervisor, key));
        self.table.insert(key, command);
        Ok(key)
    }

    /// Adds a stream as a reader of the command.
    pub fn attach(&mut self, key: u64, stream: u32) {
        if let Some(command) = self.table.get_mut(&key) {
            command.readers.push(stream);
        }
    }

    /// Removes a reader.
    pub fn detach(&mut self, key: u64, stream: u32) {
        if let Some(command) = self.table.get_mut(&key) {
            command.readers.retain(|reader| *reader != stream);
        }
        self.trim();
    }

    /// A reader has taken everything before `offset`.
    pub fn acknowledge(&mut self, key: u64, offset: u64, poller: &Poller) {
        if let Some(command) = self.table.get_mut(&key) {
            command.log.acknowledge(offset);
            if command.log.has_room() {
                command.outputs.iter_mut().for_each(|output| output.resume(key, poller));
            }
        }
    }

    /// Handles the phase changes of all supervisors.
    pub fn progress(&mut self, context: &mut Context) {
        let changed: Vec<(u64, Phase)> = self
            .supervisors
            .values_mut()
            .filter_map(|(supervisor, key)| {
                let command = self.table.get(key)?;
                let phase = supervisor.phase();
                let known = match phase {
                    Phase::Starting => true,
                    Phase::Running(_) => command.pid != 0,
                    Phase::Failed(..) => false,
                    Phase::Ended(..) => command.status.is_some(),
                };
                (!known).then_some((*key, phase))
            })
            .collect();
        for (key, phase) in changed {
            self.apply(key, phase, context);
        }
    }

    fn apply(&mut self, key: u64, phase: Phase, context: &mut Context) {
        match phase {
            Phase::Starting => {}
            Phase::Running(pid) => self.started(key, pid),
            Phase::Failed(step, errno) => {
                if let Some(command) = self.table.remove(&key) {
                    self.ids.remove(&command.id);
                    for stream in command.readers {
                        self.failed.push((stream, spawn::failure(step, errno, &command.request)));
                    }
                }
            }
            Phase::Ended(pid, status) => {
                self.started(key, pid);
                self.over(key, status, context);
            }
        }
    }

    fn started(&mut self, key: u64, pid: i32) {
        let Some(command) = self.table.get_mut(&key) else { return };
        if command.pid == 0 {
            command.pid = pid;
            if let Some(index) = self.guard_victims.iter().position(|victim| *victim == pid) {
                self.guard_victims.remove(index);
                command.guarded = true;
            }
            self.wake.extend_from_slice(&command.readers);
            for signal in command.early_signals.drain(..) {
                // SAFETY: no pointers; the process was not waited for by us.
                unsafe { libc::kill(-pid, signal) };
            }
        }
    }

    /// The command's own process has ended.
    fn over(&mut self, key: u64, status: i32, context: &mut Context) {
        let Some(command) = self.table.get_mut(&key) else { return };
        if command.status.is_some() {
            return;
        }
        command.status = Some(status);
        command.stdin = None;
        let mut waiting = false;
        for output in &mut command.outputs {
            let mut left = MOST_LEFT;
            loop {
                match output.read(&mut command.log, &mut context.buffer, true) {
                    Progress::More if left > 0 => left = left.saturating_sub(context.buffer.len()),
                    Progress::Empty if output.channel == 3 => {
                        waiting = true;
                        break;
                    }
                    _ => break,
                }
            }
        }
        if waiting {
            context.timers.after(PTY_GRACE, Timer::Drained(key));
        } else {
            self.finish(key, context);
        }
    }

    /// All output is read: the command has ended.
    pub fn finish(&mut self, key: u64, context: &mut Context) {
        let Some(command) = self.table.get_mut(&key) else { return };
        let (Some(status), None) = (command.status, command.end) else { return };
        let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        command.end = Some(match signal {
            _ if command.timed_out => End::TimedOut,
            Some(_) if command.guarded => End::OomKilled,
            Some(libc::SIGKILL)
                if !command.killed && context.memory.oom_kills() > command.oom_kills_before =>
            {
                End::OomKilled
            }
            Some(signal) => End::Signalled(signal),
            None => End::Exited(libc::WEXITSTATUS(status)),
        });
        command.log.shrink();
        self.wake.extend_from_slice(&command.readers);
        for fd in command.take_outputs() {
            let raw = fd.as_raw_fd();
            context.poller.remove(raw);
            if self.supervisors.contains_key(&command.supervisor)
                && context.poller.add(raw, Token::Leftover(raw), true, false).is_ok()
            {
                self.leftovers.insert(raw, fd);
            }
        }
        self.ended.push_back(key);
        self.trim();
    }

    /// A child of the guest has ended.
    pub fn reaped(&mut self, pid: i32, status: i32, context: &mut Context) {
        if let Some((mut supervisor, key)) = self.supervisors.remove(&pid) {
            let phase = supervisor.last_phase();
            self.apply(key, phase, context);
            if let Phase::Running(main) = phase {
                if self.table.get(&key).is_some_and(|command| command.status.is_none()) {
                    self.orphans.insert(main, key);
                }
            }
            self.spawner.reclaim(supervisor);
        } else if let Some(key) = self.orphans.remove(&pid).or_else(|| self.led_by(pid)) {
            self.started(key, pid);
            self.over(key, status, context);
        }
    }

    /// The command with this process, whose supervisor was killed and is reaped after it: gVisor keeps no
    /// order among children.
    fn led_by(&self, pid: i32) -> Option<u64> {
        let running = |key: &u64| self.table.get(key).is_some_and(|command| command.status.is_none());
        self.supervisors
            .values()
            .find(|(supervisor, key)| supervisor.early_pid() == Some(pid) && running(key))
            .map(|(_, key)| *key)
    }

    /// A child of the guest was stopped. Without its supervisor a command would never end.
    pub fn stopped(&self, pid: i32) {
        if self.supervisors.contains_key(&pid) {
            // SAFETY: no pointers; a child that was not reaped.
            unsafe { libc::kill(pid, libc::SIGCONT) };
        }
    }

    /// A descriptor of the command can be read or written.
    pub fn ready(&mut self, key: u64, part: u8, context: &mut Context) {
        let Some(command) = self.table.get_mut(&key) else { return };
        if part == 0 {
            self.write_stdin(key, &context.poller);
            return;
        }
        let mut closed = false;
        let before = command.log.total();
        if let Some(output) = command.outputs.iter_mut().find(|output| output.channel == part) {
            for _ in 0..READS_PER_TURN {
                match output.read(&mut command.log, &mut context.buffer, false) {
                    Progress::More => continue,
                    Progress::Empty => {}
                    Progress::Full => output.pause(&context.poller),
                    Progress::Closed => closed = true,
                }
                break;
            }
        }
        // Until the start is known, the guest still holds the command's ends, so no pipe can look closed by
        // mistake.
        if closed {
            command.close_output(part);
        }
        if command.log.total() != before {
            self.wake.extend_from_slice(&command.readers);
        }
        if closed && command.status.is_some() && command.outputs.is_empty() {
            self.finish(key, context);
        }
    }

    /// Discards output after the end.
    pub fn leftover(&mut self, fd: RawFd, buffer: &mut [u8]) {
        if self.leftovers.contains_key(&fd) && !discard(fd, buffer) {
            self.leftovers.remove(&fd);
        }
    }

    /// The memory guard has killed this process.
    pub fn guarded(&mut self, pid: i32) {
        match self.table.values_mut().find(|command| command.pid == pid) {
            Some(command) => command.guarded = true,
            None => self.guard_victims.push_back(pid),
        }
        if self.guard_victims.len() > 64 {
            self.guard_victims.pop_front();
        }
    }

    /// Whether commands, or processes that they left behind, may run.
    pub fn has_processes(&self) -> bool {
        !self.supervisors.is_empty() || !self.orphans.is_empty()
    }

    /// Supervisors, which belong to the guest and to no command.
    pub fn supervisor_pids(&self) -> impl Iterator<Item = &i32> {
        self.supervisors.keys()
    }

    fn drop_ended(&mut self, key: u64) {
        self.ended.retain(|other| *other != key);
        if let Some(command) = self.table.remove(&key) {
            self.ids.remove(&command.id);
        }
    }

    /// Keeps the ended commands within their bounds. A command that has a reader stays.
    fn trim(&mut self) {
        while self.ended.len() > REMEMBERED {
            let Some(key) = self
                .ended
                .iter()
                .copied()
                .find(|key| self.table.get(key).is_none_or(|command| command.readers.is_empty()))
            else {
                break;
            };
            self.drop_ended(key);
        }
        let mut kept: u64 =
            self.ended.iter().filter_map(|key| self.table.get(key)).map(|command| command.log.kept()).sum();
        for key in &self.ended {
            if kept <= KEPT_OUTPUT {
                break;
            }
            if let Some(command) = self.table.get_mut(key).filter(|command| command.readers.is_empty()) {
                kept -= command.log.kept();
                command.log.forget();
            }
        }
    }
}
