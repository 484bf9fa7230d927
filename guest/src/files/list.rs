//! `list`: what is in a directory and below.

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::info;
use super::path::FilePath;
use super::sys::{self, Doing, invalid};
use super::walk::{Step, Walk};

const BATCH_ENTRIES: usize = 256;
const BATCH_BYTES: usize = 64 * 1024;
/// Far beyond what a system call takes; keeps an entry well below the size of a frame.
const LONGEST_PATH: usize = 64 * 1024;

/// Sends entries while it walks. What disappears meanwhile is left out; a subdirectory that may not be
/// read is an entry without entries below it.
pub fn list(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let depth = match request.get("depth") {
        None | Some(Value::Null) => 1,
        Some(Value::Int(depth @ 1..)) => usize::try_from(*depth).unwrap_or(usize::MAX),
        Some(_) => return Err(invalid("The depth of a list is a number from 1")),
    };
    let root = sys::open(&path.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0).doing("list", path.bytes())?;
    let mut walk = Walk::new(root, path.bytes()).doing("list", path.bytes())?;
    let mut batch = Batch::default();
    while let Some(step) = walk.step().doing("list", path.bytes())? {
        if step == Step::Left {
            continue;
        }
        let stat = match sys::stat_at(walk.directory(), walk.name(), false) {
            Ok(stat) => stat,
            Err(error) if sys::is(&error, libc::ENOENT) => continue,
            Err(error) => return Err(error).doing("list", walk.path()),
        };
        let entry = info::of_entry(walk.directory(), walk.name(), walk.name().to_bytes(), walk.path(), &stat);
        batch.add(entry, walk.path().len(), stream)?;
        if sys::kind(&stat) == libc::S_IFDIR && walk.depth() < depth && walk.path().len() < LONGEST_PATH {
            match walk.enter() {
                Err(error)
                    if ![libc::EACCES, libc::ENOENT, libc::ENOTDIR, libc::ELOOP]
                        .iter()
                        .any(|n| sys::is(&error, *n)) =>
                {
                    return Err(error).doing("list", walk.path());
                }
                _ => {}
            }
        }
    }
    batch.flush(stream)
}

#[derive(Default)]
struct Batch {
    entries: Vec<Value>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, entry: Value, path_length: usize, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
        self.bytes += path_length + entry.bytes("target").map_or(0, <[u8]>::len) + 128;
        self.entries.push(entry);
        if self.entries.len() == BATCH_ENTRIES || self.bytes >= BATCH_BYTES {
            self.flush(stream)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        stream.send(&Value::map([("entries", Value::Array(std::mem::take(&mut self.entries)))]))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::test_stream::{Scratch, TestStream, as_user, code, errno, fails, run};
    use super::*;

    fn entries(stream: &TestStream) -> Vec<Value> {
        let messages = stream.messages.lock().expect("not poisoned");
        let batches = messages.iter().map(|message| match message.get("entries") {
            Some(Value::Array(entries)) if (1..=256).contains(&entries.len()) => entries.clone(),
            other => panic!("{other:?}"),
        });
        batches.flatten().collect()
    }

    fn paths(scratch: &Scratch, stream: &TestStream) -> Vec<String> {
        let root = format!("{}/", scratch.root().display());
        let path = |entry: &Value| {
            entry.text("path").and_then(|path| path.strip_prefix(&root)).expect("below").to_owned()
        };
        entries(stream).iter().map(path).collect()
    }

    fn tree() -> Scratch {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("b/inner/deep")).expect("made");
        for name in ["a", "c", "b/z", "b/inner/file", "B"] {
            fs::write(scratch.at(name), name).expect("written");
        }
        symlink("b", scratch.at("link")).expect("linked");
        scratch
    }

    #[test]
    fn entries_come_depth_first_by_name_and_symlinks_are_not_entered() {
        let scratch = tree();
        let all = run("list", Value::map([("path", scratch.path("")), ("depth", 9.into())]));
        let expected = ["B", "a", "b", "b/inner", "b/inner/deep", "b/inner/file", "b/z", "c", "link"];
        assert_eq!(paths(&scratch, &all), expected);
        assert_eq!(entries(&all)[8].text("target"), Some("b"));
        let two = run("list", Value::map([("path", scratch.path("")), ("depth", 2.into())]));
        assert_eq!(paths(&scratch, &two), ["B", "a", "b", "b/inner", "b/z", "c", "link"]);
        let one = run("list", Value::map([("path", scratch.path("link"))]));
        assert_eq!(paths(&scratch, &one), ["link/inner", "link/z"]);
    }

    #[test]
    fn the_root_directory_has_no_double_slashes() {
        let listed = entries(&run("list", Value::map([("path", "/".into())])));
        assert!(listed.iter().any(|entry| entry.text("path") == Some("/etc")));
    }

    #[test]
    fn many_entries_come_in_batches() {
        let scratch = Scratch::new();
        for n in 0..1000 {
            fs::write(scratch.at(&format!("{n:04}")), "").expect("written");
        }
        let stream = run("list", Value::map([("path", scratch.path(""))]));
        assert_eq!(entries(&stream).len(), 1000);
        assert!(stream.messages.lock().expect("not poisoned").len() >= 4);
    }

    #[test]
    fn files_missing_directories_and_senseless_depths_are_refused() {
        let scratch = tree();
        let list = |name: &str, depth: Value| {
            fails("list", Value::map([("path", scratch.path(name)), ("depth", depth)]))
        };
        assert_eq!(errno(&list("a", 1.into())), "ENOTDIR");
        assert_eq!(code(&list("none", 1.into())), "not_found");
        assert_eq!(code(&list("b", 0.into())), "invalid_argument");
        assert_eq!(code(&list("b", "1".into())), "invalid_argument");
    }

    #[test]
    fn a_tree_far_deeper_than_paths_and_descriptors_reach_is_listed_on_a_small_stack() {
        let scratch = Scratch::new();
        super::super::walk::tests::make_deep(&scratch, 6000);
        let worker = std::thread::Builder::new().stack_size(128 * 1024);
        let request = Value::map([("path", scratch.path("")), ("depth", 10_000.into())]);
        let stream = worker.spawn(move || run("list", request)).expect("started").join().expect("no panic");
        assert_eq!(entries(&stream).len(), 6000);
        let remove = Value::map([("path", scratch.path("d")), ("recursive", true.into())]);
        let worker = std::thread::Builder::new().stack_size(128 * 1024);
        worker.spawn(move || run("remove", remove)).expect("started").join().expect("no panic");
        assert!(scratch.names("").is_empty());
    }

    #[test]
    fn a_subdirectory_that_may_not_be_read_is_listed_without_its_content() {
        let scratch = tree();
        fs::set_permissions(scratch.at("b/inner"), fs::Permissions::from_mode(0o700)).expect("changed");
        as_user(4321, || {
            let stream = run("list", Value::map([("path", scratch.path("")), ("depth", 9.into())]));
            assert_eq!(paths(&scratch, &stream), ["B", "a", "b", "b/inner", "b/z", "c", "link"]);
            assert_eq!(
                code(&fails("list", Value::map([("path", scratch.path("b/inner"))]))),
                "permission_denied"
            );
        });
    }
}
