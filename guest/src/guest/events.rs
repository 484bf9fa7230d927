//! Signals, wakeups by other threads, and timers.

use super::*;

impl Guest {
    pub(super) fn signalled(&mut self) {
        let mut info = [0u8; 128 * 8];
        let mut stop = None;
        while let Ok(Some(n)) = sys::read(self.signals.as_raw_fd(), &mut info) {
            for one in info[..n].chunks_exact(128) {
                let number = u32::from_ne_bytes([one[0], one[1], one[2], one[3]]) as i32;
                let sender = u32::from_ne_bytes([one[12], one[13], one[14], one[15]]);
                // As PID 1 the guest obeys only senders outside the sandbox, which have no pid here: root
                // inside may not end it.
                let heard = sender == 0 || std::process::id() != 1;
                if heard && (number == libc::SIGTERM || number == libc::SIGINT) {
                    stop = Some(number);
                }
            }
            if n < info.len() {
                break;
            }
        }
        let options = libc::WNOHANG | libc::WUNTRACED | libc::__WALL;
        loop {
            let mut status = 0;
            // SAFETY: the status lives for the call.
            let pid = unsafe { libc::waitpid(-1, &mut status, options) };
            if pid <= 0 {
                break;
            }
            if libc::WIFSTOPPED(status) {
                self.commands.stopped(pid);
            } else {
                self.commands.reaped(pid, status, &mut self.context);
            }
        }
        if stop.is_some() {
            // A shutdown that was requested before keeps its reason.
            if self.shutdown_at.is_none() {
                self.ended_by = stop;
            }
            self.shut_down(5_000);
        }
    }

    pub(super) fn poked(&mut self) {
        let mut count = [0u8; 8];
        let _ = sys::read(self.poke.as_raw_fd(), &mut count);
        self.commands.progress(&mut self.context);
        for stream in self.tasks.notifier.take() {
            self.make_ready(stream);
        }
        self.tasks.sweep();
    }

    pub(super) fn timer(&mut self, timer: Timer) {
        match timer {
            Timer::Dial if self.socket.is_none() => self.dial(),
            Timer::Dial => {}
            Timer::Hello(serial) => {
                if serial == self.serial && self.socket.is_some() && !self.connection.greeted() {
                    self.lost();
                }
            }
            Timer::CommandTimeout(key) => self.commands.timeout(key, &mut self.context.timers),
            Timer::KillTree(supervisor, attempt) => {
                self.commands.kill_tree(supervisor, attempt, &mut self.context.timers)
            }
            Timer::Drained(key) => self.commands.finish(key, &mut self.context),
            Timer::Callers => self.look_at_callers(),
            Timer::Egress => self.look_at_egress(),
            Timer::Ports => self.look_at_ports(),
            Timer::Memory => {
                self.context.memory.armed = false;
                self.guard_memory();
            }
            Timer::Freeze(attempt) => self.stop_all(attempt),
            Timer::Shutdown => self.look_at_shutdown(),
        }
    }

    pub(super) fn look_at_ports(&mut self) {
        self.ports_armed = false;
        if !self.handlers.values().any(|handler| matches!(handler, Handler::Ports(_))) {
            return;
        }
        let now = self.listening();
        for (stream, handler) in &mut self.handlers {
            if let Handler::Ports(watcher) = handler {
                self.ports_armed = true;
                if self.connection.may_send(*stream) {
                    if let Some(message) = watcher.changes(&now) {
                        self.connection.message(*stream, &message);
                    }
                }
            }
        }
        if self.ports_armed {
            self.context.timers.after(PORTS_INTERVAL, Timer::Ports);
        }
    }

    /// Checks the memory while commands, or processes that they left behind, run.
    pub(super) fn guard_memory(&mut self) {
        if self.context.memory.armed || self.context.memory.limit.is_none() || !self.commands.has_processes()
        {
            return;
        }
        let ours = std::process::id() as i32;
        let supervisors: Vec<i32> = self.commands.supervisor_pids().copied().collect();
        let (killed, again) = self.context.memory.guard(|pid| pid == ours || supervisors.contains(&pid));
        if let Some(pid) = killed {
            self.commands.guarded(pid);
        }
        self.context.memory.armed = true;
        self.context.timers.after(again, Timer::Memory);
    }

    pub(super) fn shut_down(&mut self, grace_ms: u64) {
        self.thaw_to_end();
        let at = Instant::now() + Duration::from_millis(grace_ms);
        self.shutdown_at = Some(self.shutdown_at.map_or(at, |earlier| earlier.min(at)));
        for pid in self.others() {
            // SAFETY: no pointers.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        self.context.timers.after(Duration::ZERO, Timer::Shutdown);
    }

    /// All processes of the sandbox except the guest, its supervisors and processes started from outside,
    /// like a bridge.
    pub(super) fn others(&self) -> Vec<i32> {
        let all = process_table::read();
        let supervisors: Vec<i32> = self.commands.supervisor_pids().copied().collect();
        process_table::descendants(&all, std::process::id() as i32)
            .into_iter()
            .filter(|pid| !supervisors.contains(pid))
            .collect()
    }

    pub(super) fn look_at_shutdown(&mut self) {
        let Some(at) = self.shutdown_at else { return };
        let others = self.others();
        if others.is_empty() || Instant::now() >= at {
            for pid in others {
                // SAFETY: no pointers.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            self.settle();
            self.over = true;
        } else {
            self.context.timers.after(Duration::from_millis(20), Timer::Shutdown);
        }
    }
}
