//! Memory: out-of-memory kills of the kernel, and a guard where the kernel cannot help.
//!
//! Under gVisor the kernel's cgroup holds the whole sandbox as one process: exceeding the limit would end all
//! of it. So the server sends a limit, and the guest kills the largest process before it is exceeded.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::process_table;

const COUNTERS: [&str; 4] = [
    "/run/cay/cgroup/memory.events",
    "/run/cay/cgroup/memory.oom_control",
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];
const USAGE: [&str; 4] = [
    "/run/cay/cgroup/memory.current",
    "/run/cay/cgroup/memory.usage_in_bytes",
    "/sys/fs/cgroup/memory.current",
    "/sys/fs/cgroup/memory/memory.usage_in_bytes",
];
const LIMIT: [&str; 4] = [
    "/run/cay/cgroup/memory.max",
    "/run/cay/cgroup/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];
/// An upper bound of how fast memory can be allocated here.
const BYTES_PER_MS: u64 = 2 << 20;
/// More than this between two checks counts as growth.
const GROWTH: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// The memory of the sandbox.
#[derive(Default)]
pub struct Memory {
    counter: Option<File>,
    searched: bool,
    guard_kills: u64,
    used_before: u64,
    /// The limit that the server asked us to enforce.
    pub limit: Option<u64>,
    /// The guard's timer is running.
    pub armed: bool,
}

impl Memory {
    /// Out-of-memory kills by the kernel.
    pub fn oom_kills(&mut self) -> u64 {
        if !self.searched {
            self.searched = true;
            self.counter = COUNTERS.iter().find_map(|path| File::open(path).ok());
        }
        let mut bytes = [0u8; 512];
        let n = self.counter.as_ref().and_then(|file| file.read_at(&mut bytes, 0).ok()).unwrap_or(0);
        field(&bytes[..n], "oom_kill").unwrap_or(0)
    }

    /// `(used, total)` in bytes, for `stats`.
    pub fn usage(&self) -> (u64, u64) {
        let meminfo = Meminfo::read();
        let number = |paths: &[&str]| {
            paths.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        };
        // gVisor goes on showing the limit that the sandbox started with.
        let total = self.limit.unwrap_or_else(|| number(&LIMIT).unwrap_or(meminfo.total).min(meminfo.total));
        (number(&USAGE).unwrap_or(meminfo.used()), total)
    }

    /// Kills by the kernel and by the guard.
    pub fn all_kills(&mut self) -> u64 {
        self.oom_kills() + self.guard_kills
    }

    /// Checks the memory. Returns the process that was killed, if any, and when to check again.
    pub fn guard(&mut self, spare: impl Fn(i32) -> bool) -> (Option<i32>, Duration) {
        let Some(limit) = self.limit else { return (None, Duration::from_secs(1)) };
        let margin = (limit / 20).clamp(4 << 20, 64 << 20);
        let used = Meminfo::read().used();
        let grown = used > self.used_before + GROWTH;
        self.used_before = used;
        let room = limit.saturating_sub(margin).saturating_sub(used);
        if room > 0 {
            return (None, Duration::from_millis((room / BYTES_PER_MS).clamp(10, 250)));
        }
        let largest = process_table::read()
            .into_iter()
            .filter(|process| !process.zombie && !spare(process.pid))
            .max_by_key(|process| process.pages);
        // A full tmpfs belongs to no process: while it does not grow, small processes live, or it could never
        // be emptied.
        let killed =
            largest.filter(|process| grown || process.pages * PAGE >= limit / 16).map(|process| process.pid);
        if let Some(pid) = killed {
            self.guard_kills += 1;
            // SAFETY: no pointers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        // The memory of a killed process is freed a moment later; killing another one before that would be
        // wrong.
        (killed, Duration::from_millis(if killed.is_some() { 30 } else { 10 }))
    }
}

/// The line `name value`.
fn field(bytes: &[u8], name: &str) -> Option<u64> {
    std::str::from_utf8(bytes)
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[derive(Default)]
struct Meminfo {
    total: u64,
    free: u64,
    cached: u64,
    shared: u64,
    anonymous: u64,
}

impl Meminfo {
    fn read() -> Meminfo {
        let mut bytes = [0u8; 4096];
        let n = File::open("/proc/meminfo").and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
        Meminfo::parse(&bytes[..n])
    }

    fn parse(bytes: &[u8]) -> Meminfo {
        let text = String::from_utf8_lossy(bytes);
        let value = |name: &str| {
            let number = text.lines().find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(':')?
                    .split_ascii_whitespace()
                    .next()?
                    .parse::<u64>()
                    .ok()
            });
            number.unwrap_or(0).saturating_mul(1024)
        };
        Meminfo {
            total: value("MemTotal"),
            free: value("MemFree"),
            cached: value("Cached"),
            shared: value("Shmem"),
            anonymous: value("AnonPages"),
        }
    }

    /// Cached files do not count: they are evicted. Files in a tmpfs are listed among them and are not.
    ///
    /// gVisor shows the memory limit as the total, and more than the total may be in use: nothing is free
    /// then, and what is anonymous tells how much it is.
    fn used(&self) -> u64 {
        let taken = self.total.saturating_sub(self.free);
        taken.saturating_sub(self.cached.saturating_sub(self.shared)).max(self.anonymous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_both_versions_are_read() {
        assert_eq!(
            field(b"low 0\nhigh 0\nmax 3\noom 4\noom_kill 2\noom_group_kill 9\n", "oom_kill"),
            Some(2)
        );
        assert_eq!(field(b"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", "oom_kill"), Some(7));
        assert_eq!(field(b"", "oom_kill"), None);
    }

    #[test]
    fn cached_files_are_not_used_memory() {
        let meminfo = Meminfo::parse(b"MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 1 kB\nCached: 200 kB\nSwapCached: 9 kB\nShmem: 50 kB\n");
        assert_eq!(meminfo.used(), 550 * 1024);
    }

    #[test]
    fn more_than_the_total_is_used_memory() {
        let meminfo = Meminfo::parse(
            b"MemTotal: 1000 kB\nMemFree: 0 kB\nCached: 200 kB\nAnonPages: 1700 kB\nShmem: 50 kB\n",
        );
        assert_eq!(meminfo.used(), 1700 * 1024);
    }
}
