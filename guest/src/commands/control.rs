//! Operations on commands: input, signals, timeouts, terminal sizes, forgetting.

use super::*;

/// Commands in one listing, of at most 300 bytes each without their arguments.
const MOST_LISTED: usize = 1_700;
/// Bytes of all arguments in one listing.
const LISTED_ARGUMENTS: usize = 512 * 1024;

impl Commands {
    /// Input from a stream.
    pub fn input(&mut self, key: u64, stream: u32, bytes: Vec<u8>, poller: &Poller) {
        match self.table.get_mut(&key).and_then(|command| command.stdin.as_mut()) {
            Some(stdin) => stdin.push(stream, bytes),
            None => self.taken.push((stream, bytes.len())),
        }
        self.write_stdin(key, poller);
    }

    /// No more input.
    pub fn close_input(&mut self, key: u64, poller: &Poller) {
        if let Some(command) = self.table.get_mut(&key) {
            let pty = command.request.pty.is_some();
            if let Some(stdin) = &mut command.stdin {
                stdin.close(pty);
            }
        }
        self.write_stdin(key, poller);
    }

    pub(super) fn write_stdin(&mut self, key: u64, poller: &Poller) {
        if let Some(command) = self.table.get_mut(&key) {
            let taken = &mut self.taken;
            if let Some(stdin) = &mut command.stdin {
                if !stdin.write(key, poller, |stream, n| taken.push((stream, n))) {
                    command.stdin = None;
                }
            }
        }
    }

    /// The command has timed out.
    pub fn timeout(&mut self, key: u64, timers: &mut Timers) {
        if let Some(command) = self.table.get_mut(&key) {
            if command.status.is_none() {
                command.timed_out = true;
                let supervisor = command.supervisor;
                self.kill_tree(supervisor, 0, timers);
            }
        }
    }

    /// Kills all descendants of a supervisor, and retries until there are none.
    pub fn kill_tree(&mut self, supervisor: i32, attempt: u32, timers: &mut Timers) {
        if let Some((_, key)) = self.supervisors.get(&supervisor) {
            if process_table::kill_below(supervisor) > 0
                || self.table.get(key).is_some_and(|command| command.pid == 0)
            {
                // A process that cannot be killed (it waits for a disk) is retried less often.
                let pause = if attempt < 200 { 3 } else { 250 };
                timers.after(Duration::from_millis(pause), Timer::KillTree(supervisor, attempt + 1));
            }
            return;
        }
        // A process inside has killed the supervisor: the command's own session and descendants are left.
        for (&main, key) in &self.orphans {
            if self.table.get(key).is_some_and(|command| command.supervisor == supervisor) {
                let below = process_table::descendants(&process_table::read(), main);
                // SAFETY: no pointers; the process is our child and not reaped yet.
                unsafe {
                    libc::kill(main, libc::SIGKILL);
                    libc::kill(-main, libc::SIGKILL);
                    below.iter().for_each(|pid| {
                        libc::kill(*pid, libc::SIGKILL);
                    });
                }
            }
        }
    }

    /// `signal`.
    pub fn signal(&mut self, request: &Value, timers: &mut Timers) -> Result<(), Failure> {
        let signal = request.int("signal").filter(|signal| (1..=64).contains(signal));
        let signal = signal
            .ok_or_else(|| Failure::new("invalid_argument", "A signal is a number from 1 to 64"))?
            as i32;
        let (_, command) = self.known(request)?;
        if command.status.is_some() {
            return Err(Failure::new(
                "failed_precondition",
                format!("The command \"{}\" has ended", command.id),
            ));
        }
        if signal == libc::SIGKILL {
            command.killed = true;
            let supervisor = command.supervisor;
            self.kill_tree(supervisor, 0, timers);
        } else if command.pid == 0 {
            if command.early_signals.len() < 16 {
                command.early_signals.push(signal);
            }
        } else {
            // SAFETY: no pointers; the process was not reaped, or its supervisor would have reported it.
            unsafe { libc::kill(-command.pid, signal) };
        }
        Ok(())
    }

    /// `resize`.
    pub fn resize(&mut self, request: &Value) -> Result<(), Failure> {
        let size = request::size(request)?;
        let (_, command) = self.known(request)?;
        let Some(pty) = command.pty() else {
            let reason = if command.end.is_some() { "has ended" } else { "has no terminal" };
            return Err(Failure::new(
                "failed_precondition",
                format!("The command \"{}\" {reason}", command.id),
            ));
        };
        pty::resize(pty, size).map_err(|errno| Failure::from_errno(errno, "resize a terminal"))?;
        let mut group: libc::pid_t = 0;
        // SAFETY: the number lives for the call.
        if unsafe { libc::ioctl(pty.as_raw_fd(), libc::TIOCGPGRP, &mut group) } < 0 && command.pid != 0 {
            // gVisor sends no SIGWINCH and does not report the foreground group, so the whole session is
            // signalled.
            for process in process_table::read().iter().filter(|process| process.session == command.pid) {
                // SAFETY: no pointers; SIGWINCH is ignored by who does not ask for it.
                unsafe { libc::kill(process.pid, libc::SIGWINCH) };
            }
        }
        Ok(())
    }

    /// `forget`.
    pub fn forget(&mut self, request: &Value) -> Result<(), Failure> {
        let id = request::id(request)?;
        let Some(key) = self.find(id) else { return Ok(()) };
        if self.table.get(&key).is_some_and(|command| command.end.is_none()) {
            return Err(Failure::new("failed_precondition", format!("The command \"{id}\" is running")));
        }
        self.drop_ended(key);
        Ok(())
    }

    /// `commands`, oldest first. The list must fit into one frame: the oldest of very many are left out, and
    /// all share the room for arguments.
    pub fn list(&self) -> Value {
        let mut all: Vec<(&u64, &Command)> =
            self.table.iter().filter(|(_, command)| command.pid != 0).collect();
        all.sort_by_key(|(key, _)| **key);
        let listed = &all[all.len().saturating_sub(MOST_LISTED)..];
        let share = LISTED_ARGUMENTS / listed.len().max(1);
        Value::map([(
            "commands",
            Value::Array(listed.iter().map(|(_, command)| command.describe(share)).collect()),
        )])
    }
}
