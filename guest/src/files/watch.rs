//! `watch`: tells what happens to a file, or in a directory and below.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::FilePath;
use super::sys::{self, Doing};
use super::watch_tree::{Scan, Watch, WatchTree};

const BATCH: usize = 64;
/// How long the second half of a move is waited for. It comes at once if it comes at all.
const PATIENCE: Duration = Duration::from_millis(10);
/// Of paths that a scan has told and the kernel may tell again.
const MOST_TOLD: usize = 4096;

/// Goes on until the stream is gone, or what is watched is. A file is watched through its directory, so that
/// one that is replaced is still seen.
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
    let teller = Teller { stream, only, batch: Vec::new() };
    let mut watcher = Watcher { tree, teller, recursive, moved: Vec::new(), told: HashSet::new(), ended: false };
    watcher.note_limit()?;
    watcher.follow()?;
    watcher.teller.flush()
}

struct Watcher<'a> {
    tree: WatchTree,
    teller: Teller<'a>,
    recursive: bool,
    moved: Vec<Moved>,
    told: HashSet<Vec<u8>>,
    ended: bool,
}

/// The first half of a move: something has left its place.
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
            // Everything that the kernel had to say about what a scan has told has been said.
            self.told.clear();
            self.give_up_on_moves(Instant::now())?;
            self.teller.flush()?;
            self.wait()?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Stopped> {
        let next = self.moved.iter().map(|moved| moved.until).min();
        let timeout_ms = next.map_or(-1, |until| until.saturating_duration_since(Instant::now()).as_millis() as i32 + 1);
        let mut ready = [(self.tree.fd(), false), (self.teller.stream.gone(), false)];
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
        // What is told about a place from now on is about something else than what has left it.
        if let Some(left) = self.moved.iter().position(|moved| moved.path == path) {
            let left = self.moved.swap_remove(left);
            self.left(left)?;
        }
        if event.mask & libc::IN_MOVED_FROM != 0 {
            let (name, until) = (event.name.to_vec(), Instant::now() + PATIENCE);
            self.moved.push(Moved { cookie: event.cookie, parent: event.watch, name, path, directory, until });
            // Without a bound a flood of moves out of the tree would be kept until it ends.
            return if self.moved.len() > BATCH { self.give_up_on_moves(Instant::now() + PATIENCE) } else { Ok(()) };
        }
        if event.mask & (libc::IN_CREATE | libc::IN_MOVED_TO) != 0 {
            return self.created(&event, path, directory);
        }
        if event.mask & libc::IN_DELETE != 0 {
            self.told.remove(&path);
            return self.teller.tell("removed", path);
        }
        if event.mask & libc::IN_MODIFY != 0 {
            return self.teller.tell("modified", path);
        }
        if event.mask & libc::IN_ATTRIB != 0 {
            return self.teller.tell("attributes", path);
        }
        Ok(())
    }

    /// About a watched directory itself. All but the root are told of by the directory that they are in.
    fn own_event(&mut self, event: &Event) -> Result<(), Stopped> {
        if !self.tree.is_root(event.watch) {
            if event.mask & libc::IN_IGNORED != 0 {
                self.tree.forget(event.watch);
            }
            return Ok(());
        }
        if event.mask & (libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_UNMOUNT | libc::IN_IGNORED) != 0 {
            self.ended = true;
            let gone = self.teller.only.as_ref().map_or(self.tree.root(), |(real, _)| real).to_owned();
            return self.teller.tell("removed", gone);
        }
        if event.mask & libc::IN_ATTRIB != 0 {
            return self.teller.tell("attributes", self.tree.root().to_owned());
        }
        Ok(())
    }

    fn created(&mut self, event: &Event, path: Vec<u8>, directory: bool) -> Result<(), Stopped> {
        if !self.told.remove(&path) {
            self.teller.tell("created", path)?;
        }
        if directory && self.recursive {
            self.look_into(event)?;
        }
        Ok(())
    }

    fn renamed(&mut self, event: &Event, from: Moved, path: Vec<u8>, directory: bool) -> Result<(), Stopped> {
        self.told.remove(&path);
        if self.teller.only.as_ref().is_some_and(|(real, _)| *real == from.path) {
            self.teller.tell("removed", from.path)?;
        }
        self.teller.tell("renamed", path)?;
        if directory && self.recursive {
            self.look_into(event)?;
        }
        Ok(())
    }

    /// Watches a directory that has come, and tells what came into it before it was watched.
    fn look_into(&mut self, event: &Event) -> Result<(), Stopped> {
        if let Some((watch, true)) = self.tree.add(event.watch, event.name, true) {
            let (told, teller) = (&mut self.told, &mut self.teller);
            self.tree.scan(watch, Scan::New, |path| {
                if told.len() < MOST_TOLD {
                    told.insert(path.to_owned());
                }
                teller.tell("created", path.to_owned())
            })?;
        }
        self.note_limit()
    }

    /// Events were lost: directories may have come, gone and moved.
    fn look_anew(&mut self) -> Result<(), Stopped> {
        self.moved.clear();
        if self.recursive {
            let start = self.tree.root_watch();
            let stream = &*self.teller.stream;
            self.tree.scan(start, Scan::Anew, |_| sys::alive(stream))?;
        }
        self.overflow()
    }

    fn note_limit(&mut self) -> Result<(), Stopped> {
        if std::mem::take(&mut self.tree.limited) { self.overflow() } else { Ok(()) }
    }

    fn overflow(&mut self) -> Result<(), Stopped> {
        let path = self.teller.only.as_ref().map_or(self.tree.root(), |(real, _)| real).to_owned();
        self.teller.tell("overflow", path)
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
        self.teller.tell("removed", moved.path)
    }
}

/// Sends events in batches.
struct Teller<'a> {
    stream: &'a mut dyn TaskStream,
    /// The only path of interest, and what it is called in events.
    only: Option<(Vec<u8>, Vec<u8>)>,
    batch: Vec<(&'static str, Vec<u8>)>,
}

impl Teller<'_> {
    /// Many writes in a row are one event.
    fn tell(&mut self, kind: &'static str, mut path: Vec<u8>) -> Result<(), Stopped> {
        if let Some((real, called)) = &self.only {
            if path != *real {
                return Ok(());
            }
            path.clone_from(called);
        }
        if matches!(self.batch.iter().rev().find(|(_, other)| *other == path), Some((last, _)) if *last == kind) {
            return Ok(());
        }
        self.batch.push((kind, path));
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let event = |(kind, path): (&str, Vec<u8>)| Value::map([("type", kind.into()), ("path", Value::name(&path))]);
        let events = self.batch.drain(..).map(event).collect();
        self.stream.send(&Value::map([("events", Value::Array(events))]))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;

    use super::super::test_stream::{Scratch, TestStream, code, fails};
    use super::*;

    /// A watch that runs on a thread of its own.
    struct Running {
        root: String,
        messages: Arc<Mutex<Vec<Value>>>,
        gone: Arc<fs::File>,
        worker: Option<JoinHandle<Result<(), Stopped>>>,
    }

    impl Running {
        fn start(scratch: &Scratch, name: &str, recursive: bool) -> Running {
            let mut stream = TestStream::new();
            let request = Value::map([("path", scratch.path(name)), ("recursive", recursive.into())]);
            let (messages, gone) = (stream.messages.clone(), stream.gone.clone());
            let builder = std::thread::Builder::new().stack_size(128 * 1024);
            let worker = builder.spawn(move || super::super::run("watch", &request, &mut stream)).expect("started");
            let running = Running { root: scratch.root().display().to_string(), messages, gone, worker: Some(worker) };
            running.until(|running| !running.messages.lock().expect("not poisoned").is_empty());
            assert!(running.messages.lock().expect("not poisoned")[0].flag("ready"));
            running
        }

        fn until(&self, done: impl Fn(&Running) -> bool) {
            let end = Instant::now() + Duration::from_secs(10);
            while !done(self) {
                assert!(Instant::now() < end, "waited too long: {:?}", self.events());
                std::thread::sleep(Duration::from_millis(2));
            }
        }

        /// As `type path`, the path relative to the scratch directory.
        fn events(&self) -> Vec<String> {
            let messages = self.messages.lock().expect("not poisoned");
            let batches = messages.iter().filter_map(|message| match message.get("events") {
                Some(Value::Array(events)) => Some(events.clone()),
                _ => None,
            });
            let batches: Vec<Vec<Value>> = batches.collect();
            assert!(batches.iter().all(|batch| (1..=BATCH).contains(&batch.len())));
            let event = |event: &Value| {
                let path = event.text("path").expect("a path").strip_prefix(&self.root).expect("below");
                format!("{} {}", event.text("type").expect("a type"), path.trim_start_matches('/'))
            };
            batches.iter().flatten().map(event).collect()
        }

        fn sees(&self, event: &str) {
            self.until(|running| running.events().iter().any(|seen| seen == event));
        }

        fn stop(mut self) -> Vec<String> {
            TestStream::vanish(&self.gone);
            let ended = self.worker.take().expect("running").join().expect("no panic");
            assert_eq!(code(&ended.expect_err("gone")), "gone");
            let mut events = self.events();
            // Truncating and writing are two changes, which may be told in two batches.
            events.dedup_by(|a, b| a == b && a.starts_with("modified"));
            events
        }
    }

    #[test]
    fn everything_that_happens_in_a_directory_is_told_in_order() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("dir/sub")).expect("made");
        let watch = Running::start(&scratch, "dir", false);
        fs::write(scratch.at("dir/a"), "one").expect("written");
        watch.sees("modified dir/a");
        fs::set_permissions(scratch.at("dir/a"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("changed");
        fs::rename(scratch.at("dir/a"), scratch.at("dir/b")).expect("moved");
        fs::rename(scratch.at("dir/b"), scratch.at("out")).expect("moved");
        watch.sees("removed dir/b");
        fs::rename(scratch.at("out"), scratch.at("dir/in")).expect("moved");
        fs::write(scratch.at("dir/sub/unseen"), "").expect("written");
        fs::remove_file(scratch.at("dir/in")).expect("removed");
        watch.sees("removed dir/in");
        let expected = [
            "created dir/a", "modified dir/a", "attributes dir/a", "renamed dir/b", "removed dir/b", "created dir/in", "removed dir/in",
        ];
        assert_eq!(watch.stop(), expected);
    }

    #[test]
    fn new_directories_are_watched_and_what_is_in_them_already_is_told_once() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("dir")).expect("made");
        let watch = Running::start(&scratch, "dir", true);
        for n in 0..20 {
            fs::create_dir_all(scratch.at(&format!("dir/{n}/x/y"))).expect("made");
            fs::File::create(scratch.at(&format!("dir/{n}/x/y/file"))).expect("made");
        }
        for n in 0..20 {
            watch.sees(&format!("created dir/{n}/x/y/file"));
        }
        fs::write(scratch.at("dir/7/x/y/later"), "").expect("written");
        watch.sees("created dir/7/x/y/later");
        let events = watch.stop();
        for n in 0..20 {
            for path in [format!("dir/{n}"), format!("dir/{n}/x"), format!("dir/{n}/x/y"), format!("dir/{n}/x/y/file")] {
                let told = events.iter().filter(|event| **event == format!("created {path}")).count();
                assert_eq!(told, 1, "{path}: {events:?}");
            }
        }
    }

    #[test]
    fn a_moved_directory_takes_its_watches_along_or_loses_them() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("dir/old/sub")).expect("made");
        fs::create_dir_all(scratch.at("outside/sub")).expect("made");
        fs::write(scratch.at("outside/sub/file"), "").expect("written");
        let watch = Running::start(&scratch, "dir", true);
        fs::rename(scratch.at("dir/old"), scratch.at("dir/new")).expect("moved");
        watch.sees("renamed dir/new");
        fs::write(scratch.at("dir/new/sub/file"), "").expect("written");
        watch.sees("created dir/new/sub/file");
        fs::rename(scratch.at("dir/new"), scratch.at("gone")).expect("moved");
        watch.sees("removed dir/new");
        fs::write(scratch.at("gone/sub/unseen"), "").expect("written");
        fs::rename(scratch.at("outside"), scratch.at("dir/in")).expect("moved");
        watch.sees("created dir/in/sub/file");
        fs::remove_file(scratch.at("dir/in/sub/file")).expect("removed");
        watch.sees("removed dir/in/sub/file");
        assert!(!watch.stop().iter().any(|event| event.contains("unseen")));
    }

    #[test]
    fn a_file_is_watched_even_when_it_is_replaced() {
        let scratch = Scratch::new();
        fs::write(scratch.at("file"), "").expect("written");
        fs::write(scratch.at("other"), "").expect("written");
        std::os::unix::fs::symlink("file", scratch.at("link")).expect("linked");
        let watch = Running::start(&scratch, "link", true);
        fs::write(scratch.at("other"), "unseen").expect("written");
        fs::write(scratch.at("file"), "seen").expect("written");
        watch.sees("modified link");
        fs::rename(scratch.at("other"), scratch.at("file")).expect("moved");
        watch.sees("renamed link");
        fs::rename(scratch.at("file"), scratch.at("away")).expect("moved");
        watch.sees("removed link");
        assert_eq!(watch.stop(), ["modified link", "renamed link", "removed link"]);
    }

    #[test]
    fn the_watch_ends_with_what_is_watched() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("dir")).expect("made");
        let mut watch = Running::start(&scratch, "dir", true);
        fs::remove_dir(scratch.at("dir")).expect("removed");
        watch.worker.take().expect("running").join().expect("no panic").expect("ended well");
        assert_eq!(watch.events().last().map(String::as_str), Some("removed dir"));
        assert_eq!(code(&fails("watch", Value::map([("path", scratch.path("dir"))]))), "not_found");
    }

    #[test]
    fn many_at_once_lose_nothing_or_say_so() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("dir")).expect("made");
        let watch = Running::start(&scratch, "dir", true);
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let root = scratch.at("dir");
                std::thread::spawn(move || {
                    for n in 0..500 {
                        let sub = root.join(format!("{writer}/{}", n % 10));
                        fs::create_dir_all(&sub).expect("made");
                        fs::write(sub.join(n.to_string()), "x").expect("written");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        fs::write(scratch.at("dir/last"), "").expect("written");
        watch.sees("created dir/last");
        let events = watch.stop();
        if events.iter().any(|event| event.starts_with("overflow")) {
            println!("the kernel's queue has overflowed, and the watch says so");
            return;
        }
        for writer in 0..4 {
            for n in 0..500 {
                let path = format!("created dir/{writer}/{}/{n}", n % 10);
                assert!(events.contains(&path), "{path}");
            }
        }
    }

    #[test]
    fn after_lost_events_new_directories_are_watched_too() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("dir/a/b")).expect("made");
        fs::create_dir_all(scratch.at("dir/stays")).expect("made");
        let request = Value::map([("p", scratch.path("dir"))]);
        let root = FilePath::of(&request, "p").expect("a path");
        let mut tree = WatchTree::new(root.bytes()).expect("watched");
        let start = tree.root_watch();
        tree.scan(start, Scan::New, |_| Ok::<(), ()>(())).expect("scanned");
        let (inner, _) = tree.add(start, b"a", false).expect("known");
        fs::rename(scratch.at("dir/a"), scratch.at("dir/moved")).expect("moved");
        fs::create_dir_all(scratch.at("dir/new/deep")).expect("made");
        tree.scan(start, Scan::Anew, |_| Ok::<(), ()>(())).expect("scanned");
        assert_eq!(tree.path(inner, b"x"), Some([root.bytes(), b"/moved/x"].concat()));
        let (new, fresh) = tree.add(start, b"new", false).expect("there");
        assert!(!fresh && tree.path(new, b"").is_some());
    }
}
