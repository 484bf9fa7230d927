//! Timers. The loop sleeps until the earliest one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// What a timer is for. A timer that is no longer needed is ignored when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Dial again.
    Dial,
    /// The timeout of the HELLO of this connection.
    Hello(u64),
    /// The timeout of a command.
    CommandTimeout(u64),
    /// Kill the descendants of a supervisor again, with the number of the attempt.
    KillTree(i32, u32),
    /// The last output of a terminal should have arrived.
    Drained(u64),
    /// Check the listening ports.
    Ports,
    /// Drop callers that have not proven their key in time.
    Callers,
    /// Answer late lookups, and close what egress does not use.
    Egress,
    /// Check the memory.
    Memory,
    /// Stop processes that still run in a frozen sandbox, with the number of the attempt.
    Freeze(usize),
    /// The grace of a shutdown is over, or check whether all processes have ended.
    Shutdown,
}

/// Timers, earliest first.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Timers {
    /// Adds a timer.
    pub fn after(&mut self, delay: Duration, timer: Timer) {
        // Beyond a year is as good as never, and an Instant cannot hold everything.
        let delay = delay.min(Duration::from_secs(365 * 86_400));
        self.heap.push(Reverse((Instant::now() + delay, timer)));
    }

    /// The next timer that is due.
    pub fn due(&mut self) -> Option<Timer> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > Instant::now() {
            return None;
        }
        let Reverse((_, timer)) = self.heap.pop()?;
        if self.heap.is_empty() && self.heap.capacity() > 256 {
            self.heap = BinaryHeap::new();
        }
        Some(timer)
    }

    /// How long the loop may sleep, for `epoll_wait`: rounded up, so that it does not wake too early and
    /// spin.
    pub fn sleep_ms(&self) -> i32 {
        match self.heap.peek() {
            None => -1,
            Some(Reverse((at, _))) => {
                let micros = at.saturating_duration_since(Instant::now()).as_micros();
                micros.div_ceil(1000).min(60_000) as i32
            }
        }
    }
}
