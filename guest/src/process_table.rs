//! Processes, their parents and their memory, read from `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;

/// How often one call looks for new processes.
const LOOKS: usize = 20;

/// One process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// It has ended and waits to be reaped.
    pub zombie: bool,
    /// A signal or a tracer has stopped it.
    pub stopped: bool,
    /// Resident memory in pages.
    pub pages: u64,
    /// CPU time of its own and of the children that it waited for.
    pub cpu_ms: u64,
}

/// A hundredth of a second, on every machine that we know.
const TICK_MS: u64 = 10;

/// All processes that can be seen.
pub fn read() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let mut bytes = [0u8; 1024];
            let n = fs::File::open(format!("/proc/{pid}/stat"))
                .and_then(|mut file| file.read(&mut bytes))
                .ok()?;
            parse(pid, &bytes[..n])
        })
        .collect()
}

/// The name in parentheses can hold anything, also parentheses: the fields begin after the last one.
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    Some(Process {
        pid,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        stopped: matches!(*fields.first()?, "T" | "t"),
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        pages: fields.get(21).and_then(|pages| pages.parse().ok()).unwrap_or(0),
        cpu_ms: fields.get(11..15)?.iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
            * TICK_MS,
    })
}

/// CPU time of all processes, including ended ones that were reaped. The sandbox's cgroup counts it; where
/// none is visible, the processes are added up.
pub fn cpu_usage_ms() -> u64 {
    let counted = fs::read_to_string("/sys/fs/cgroup/cpu.stat")
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<u64>().ok()));
    if let Some(microseconds) = counted {
        return microseconds / 1000;
    }
    let counted = fs::read_to_string("/sys/fs/cgroup/cpuacct/cpuacct.usage")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    counted.map_or_else(
        || read().iter().map(|process| process.cpu_ms).sum(),
        |nanoseconds| nanoseconds / 1_000_000,
    )
}

/// The living descendants of `root`, parents before their children: a process killed in this order does not
/// see its children die first.
pub fn descendants(all: &[Process], root: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all.iter().filter(|process| process.pid != root) {
        children.entry(process.parent).or_default().push(process);
    }
    let mut living = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            if !child.zombie {
                living.push(child.pid);
            }
            parents.push(child.pid);
        }
    }
    living
}

/// Sends SIGKILL to all descendants of `root`, until a listing finds no new one. Returns how many were left.
/// A fork bomb loses within a few rounds, because each round kills all that exist.
pub fn kill_below(root: i32) -> usize {
    let mut killed = HashSet::new();
    for _ in 0..LOOKS {
        let found = descendants(&read(), root);
        let mut any_new = false;
        for pid in &found {
            any_new |= killed.insert(*pid);
            // SAFETY: no pointers. The pid of a descendant cannot have been reused unless it was reaped
            // within this call.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        if !any_new {
            return found.len();
        }
    }
    killed.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let process = parse(
            7,
            b"7 (a) Z 1 (x) S 3 7 5 0 -1 0 0 0 0 0 1 2 3 4 20 0 1 0 47 10907648 1051 18446744073709551615",
        )
        .unwrap();
        assert_eq!(
            (process.parent, process.session, process.zombie, process.pages, process.cpu_ms),
            (3, 5, false, 1051, 100)
        );
        assert!(parse(7, b"7 (a").is_none());
        assert!(parse(7, b"").is_none());
    }

    #[test]
    fn descendants_come_after_their_parents_in_whatever_order_they_are_read() {
        let make = |pid, parent| Process {
            pid,
            parent,
            session: 0,
            zombie: false,
            stopped: false,
            pages: 0,
            cpu_ms: 0,
        };
        let all = [make(9, 8), make(8, 7), make(7, 1), make(5, 1), make(1, 0)];
        assert_eq!(descendants(&all, 7), [8, 9]);
        assert_eq!(descendants(&all, 1)[..1], [7], "siblings as they come, then what is below them");
    }

    #[test]
    fn we_see_ourselves() {
        assert!(read().iter().any(|process| process.pid == std::process::id() as i32));
    }
}
