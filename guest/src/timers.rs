//! What has to happen later. The loop sleeps until the earliest of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// What a timer is for. One that has lost its meaning is ignored when it goes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Dial again.
    Dial,
    /// The HELLO of this connection should have come.
    Hello(u64),
    /// The command's time is up.
    CommandTimeout(u64),
    /// Look again for processes below a supervisor that are being killed, for the so many-th time.
    KillTree(i32, u32),
    /// The rest of a terminal's output should have come.
    Drained(u64),
    /// Look at the listening ports.
    Ports,
    /// Send callers away who take too long.
    Callers,
    /// Look at the memory.
    Memory,
    /// Look for processes that run although all should stand still, for the so many-th time.
    Freeze(usize),
    /// The grace of a shutdown is over, or a look whether all is gone.
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
