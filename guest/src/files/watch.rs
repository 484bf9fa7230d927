//! `watch`: reports changes of a file, or in a directory and below.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::FilePath;
use super::sys::{self, Doing};
use super::watch_tree::{Scan, Watch, WatchTree};

const BATCH: usize = 64;
/// How long to wait for the second half of a move. If it exists it comes at once.
const PATIENCE: Duration = Duration::from_millis(10);
/// Paths that a scan has reported and the kernel may report again.
const MOST_REPORTED: usize = 4096;

/// Runs until the stream or the watched path is gone. A file is watched through its directory, so that its
/// replacement is seen.
pub fn watch(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let stat = path.stat(true).doing("watch", path.bytes())?;
    let (root, only) = if sys::kind(&stat) == libc::S_IFDIR {
        (path.clone(), None)
    } else {
        let real = path.followed()?;
        let (directory, _) = real.place("watch")?;
        (directory, Some((real.bytes().to_owned(), path.bytes().to_owned())))
    };
    let recursive = request.flag("recursive") && only.is_none();
    let mut tree = WatchTree::new(root.bytes()).doing("watch", path.bytes())?;
    if recursive {
        let start = tree.root_watch();
        tree.scan(start, Scan::New, |_| sys::alive(stream))?;
    }
    stream.send(&Value::map([("ready", true.into())]))?;
    let reporter = Reporter { stream, only, batch: Vec::new() };
    let mut watcher =
        Watcher { tree, reporter, recursive, moved: Vec::new(), reported: HashSet::new(), ended: false };
    watcher.note_limit()?;
    watcher.follow()?;
    watcher.reporter.flush()
}

struct Watcher<'a> {
    tree: WatchTree,
    reporter: Reporter<'a>,
    recursive: bool,
    moved: Vec<Moved>,
    reported: HashSet<Vec<u8>>,
    ended: bool,
}

/// The first half of a move: an entry has left its place.
struct Moved {
    cookie: u32,
    parent: Watch,
    name: Vec<u8>,
    path: Vec<u8>,
    directory: bool,
    until: Instant,
}

struct Event<'a> {
    watch: Watch,
    mask: u32,
    cookie: u32,
    name: &'a [u8],
}

impl Watcher<'_> {
    fn follow(&mut self) -> Result<(), Stopped> {
        let mut buffer = vec![0; 64 * 1024];
        while !self.ended {
            let length = self.tree.read(&mut buffer).doing("watch", self.tree.root())?;
            if length > 0 {
                self.take(&buffer[..length])?;
                continue;
            }
            // The kernel has reported everything about the paths that a scan has reported.
            self.reported.clear();
            self.give_up_on_moves(Instant::now())?;
            self.reporter.flush()?;
            self.wait()?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Stopped> {
        let next = self.moved.iter().map(|moved| moved.until).min();
        let timeout_ms =
            next.map_or(-1, |until| until.saturating_duration_since(Instant::now()).as_millis() as i32 + 1);
        let mut ready = [(self.tree.fd(), false), (self.reporter.stream.gone(), false)];
        sys::poll(&mut ready, timeout_ms).doing("watch", self.tree.root())?;
        if ready[1].1 { Err(Stopped::Gone) } else { Ok(()) }
    }

    /// Records are: watch (4), mask (4), cookie (4), length of the name (4), the name filled up with NULs.
    fn take(&mut self, mut records: &[u8]) -> Result<(), Stopped> {
        while let Some((head, rest)) = records.split_first_chunk::<16>() {
            let number = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let length = (number(12) as usize).min(rest.len());
            let name = rest[..length].split(|byte| *byte == 0).next().unwrap_or_default();
            self.event(Event { watch: number(0) as i32, mask: number(4), cookie: number(8), name })?;
            records = &rest[length..];
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Stopped> {
        if event.mask & libc::IN_Q_OVERFLOW != 0 {
            return self.look_anew();
        }
        if event.name.is_empty() {
            return self.own_event(&event);
        }
        let Some(path) = self.tree.path(event.watch, event.name) else { return Ok(()) };
        let directory = event.mask & libc::IN_ISDIR != 0;
        if event.mask & libc::IN_MOVED_TO != 0
            && let Some(first) = self.moved.iter().position(|moved| moved.cookie == event.cookie)
        {
            let from = self.moved.swap_remove(first);
            return self.renamed(&event, from, path, directory);
        }
        // Later events about this place concern another entry.
        if let Some(left) = self.moved.iter().position(|moved| moved.path == path) {
            let left = self.moved.swap_remove(left);
            self.left(left)?;
        }
        if event.mask & libc::IN_MOVED_FROM != 0 {
            let (name, until) = (event.name.to_vec(), Instant::now() + PATIENCE);
            self.moved.push(Moved {
                cookie: event.cookie,
                parent: event.watch,
                name,
                path,
                directory,
                until,
            });
            // Without a bound a flood of moves out of the tree would be kept in memory.
            return if self.moved.len() > BATCH {
                self.give_up_on_moves(Instant::now() + PATIENCE)
            } else {
                Ok(())
            };
        }
        if event.mask & (libc::IN_CREATE | libc::IN_MOVED_TO) != 0 {
            return self.created(&event, path, directory);
        }
        if event.mask & libc::IN_DELETE != 0 {
            self.reported.remove(&path);
            return self.reporter.report("removed", path);
        }
        if event.mask & libc::IN_MODIFY != 0 {
            return self.reporter.report("modified", path);
        }
        if event.mask & libc::IN_ATTRIB != 0 {
            return self.reporter.report("attributes", path);
        }
        Ok(())
    }

    /// About a watched directory itself. All but the root are reported by their parent.
    fn own_event(&mut self, event: &Event) -> Result<(), Stopped> {
        if !self.tree.is_root(event.watch) {
            if event.mask & libc::IN_IGNORED != 0 {
                self.tree.forget(event.watch);
            }
            return Ok(());
        }
        if event.mask & (libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_UNMOUNT | libc::IN_IGNORED) != 0
        {
            self.ended = true;
            let gone = self.reporter.only.as_ref().map_or(self.tree.root(), |(real, _)| real).to_owned();
            return self.reporter.report("removed", gone);
        }
        if event.mask & libc::IN_ATTRIB != 0 {
            return self.reporter.report("attributes", self.tree.root().to_owned());
        }
        Ok(())
    }

    fn created(&mut self, event: &Event, path: Vec<u8>, directory: bool) -> Result<(), Stopped> {
        if !self.reported.remove(&path) {
            self.reporter.report("created", path)?;
        }
        if directory && self.recursive {
            self.look_into(event)?;
        }
        Ok(())
    }

    fn renamed(&mut self, event: &Event, from: Moved, path: Vec<u8>, directory: bool) -> Result<(), Stopped> {
        self.reported.remove(&path);
        if self.reporter.only.as_ref().is_some_and(|(real, _)| *real == from.path) {
            self.reporter.report("removed", from.path)?;
        }
        self.reporter.report("renamed", path)?;
        if directory && self.recursive {
            self.look_into(event)?;
        }
        Ok(())
    }

    /// Watches a new directory, and reports the entries that were created before the watch.
    fn look_into(&mut self, event: &Event) -> Result<(), Stopped> {
        if let Some((watch, true)) = self.tree.add(event.watch, event.name, true) {
            let (reported, reporter) = (&mut self.reported, &mut self.reporter);
            self.tree.scan(watch, Scan::New, |path| {
                if reported.len() < MOST_REPORTED {
                    reported.insert(path.to_owned());
                }
                reporter.report("created", path.to_owned())
            })?;
        }
        self.note_limit()
    }

    /// Events were lost: directories may have been created, removed and moved.
    fn look_anew(&mut self) -> Result<(), Stopped> {
        self.moved.clear();
        if self.recursive {
            let start = self.tree.root_watch();
            let stream = &*self.reporter.stream;
            self.tree.scan(start, Scan::Full, |_| sys::alive(stream))?;
        }
        self.overflow()
    }

    fn note_limit(&mut self) -> Result<(), Stopped> {
        if std::mem::take(&mut self.tree.limited) { self.overflow() } else { Ok(()) }
    }

    fn overflow(&mut self) -> Result<(), Stopped> {
        let path = self.reporter.only.as_ref().map_or(self.tree.root(), |(real, _)| real).to_owned();
        self.reporter.report("overflow", path)
    }

    fn give_up_on_moves(&mut self, now: Instant) -> Result<(), Stopped> {
        while let Some(late) = self.moved.iter().position(|moved| moved.until <= now) {
            let left = self.moved.remove(late);
            self.left(left)?;
        }
        Ok(())
    }

    /// It was moved out of the tree.
    fn left(&mut self, moved: Moved) -> Result<(), Stopped> {
        if moved.directory && self.recursive {
            self.tree.drop_below(moved.parent, &moved.name);
        }
        self.reporter.report("removed", moved.path)
    }
}

/// Sends events in batches.
struct Reporter<'a> {
    stream: &'a mut dyn TaskStream,
    /// The only path of interest, and its name in events.
    only: Option<(Vec<u8>, Vec<u8>)>,
    batch: Vec<(&'static str, Vec<u8>)>,
}

impl Reporter<'_> {
    /// Several writes in a row are one event.
    fn report(&mut self, kind: &'static str, mut path: Vec<u8>) -> Result<(), Stopped> {
        if let Some((real, called)) = &self.only {
            if path != *real {
                return Ok(());
            }
            path.clone_from(called);
        }
        if matches!(self.batch.iter().rev().find(|(_, other)| *other == path), Some((last, _)) if *last == kind)
        {
            return Ok(());
        }
        self.batch.push((kind, path));
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let event =
            |(kind, path): (&str, Vec<u8>)| Value::map([("type", kind.into()), ("path", Value::name(&path))]);
        let events = self.batch.drain(..).map(event).collect();
        self.stream.send(&Value::map([("events", Value::Array(events))]))
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
