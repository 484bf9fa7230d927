//! Tests of `watch.rs`.

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
        let worker =
            builder.spawn(move || super::super::run("watch", &request, &mut stream)).expect("started");
        let running =
            Running { root: scratch.root().display().to_string(), messages, gone, worker: Some(worker) };
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
        // Truncating and writing are two changes, which may be reported in two batches.
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
    fs::set_permissions(scratch.at("dir/a"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("changed");
    fs::rename(scratch.at("dir/a"), scratch.at("dir/b")).expect("moved");
    fs::rename(scratch.at("dir/b"), scratch.at("out")).expect("moved");
    watch.sees("removed dir/b");
    fs::rename(scratch.at("out"), scratch.at("dir/in")).expect("moved");
    fs::write(scratch.at("dir/sub/unseen"), "").expect("written");
    fs::remove_file(scratch.at("dir/in")).expect("removed");
    watch.sees("removed dir/in");
    let expected = [
        "created dir/a",
        "modified dir/a",
        "attributes dir/a",
        "renamed dir/b",
        "removed dir/b",
        "created dir/in",
        "removed dir/in",
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
        for path in
            [format!("dir/{n}"), format!("dir/{n}/x"), format!("dir/{n}/x/y"), format!("dir/{n}/x/y/file")]
        {
            let reported = events.iter().filter(|event| **event == format!("created {path}")).count();
            assert_eq!(reported, 1, "{path}: {events:?}");
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
    tree.scan(start, Scan::Full, |_| Ok::<(), ()>(())).expect("scanned");
    assert_eq!(tree.path(inner, b"x"), Some([root.bytes(), b"/moved/x"].concat()));
    let (new, fresh) = tree.add(start, b"new", false).expect("there");
    assert!(!fresh && tree.path(new, b"").is_some());
}
