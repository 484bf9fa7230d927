//! `remove`: a file, a symlink, or a directory with all it holds.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::FilePath;
use super::reach::{self, Reach};
use super::sys::{self, Doing};
use super::walk::{Step, Walk};

/// A symlink is removed itself, never what it points to.
pub fn remove(request: &Value, reach: Option<&Reach>, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let (directory, name) = reach::hold(reach, &path, "remove")?;
    let directory = directory.as_raw_fd();
    let stat = sys::stat_at(directory, &name, false).doing("remove", path.bytes())?;
    if sys::kind(&stat) != libc::S_IFDIR {
        sys::unlink_at(directory, &name).doing("remove", path.bytes())?;
    } else if request.flag("recursive") {
        remove_tree(directory, &name, path.bytes(), Some(stream))?;
    } else {
        sys::remove_directory_at(directory, &name).doing("remove", path.bytes())?;
    }
    super::done(stream)
}

/// Removes the directory `name` and everything in it. Every step is relative to an open directory and follows
/// no symlink, so a swapped-in symlink cannot redirect it. Stops when `stream` is gone.
pub fn remove_tree(
    directory: RawFd,
    name: &CStr,
    path: &[u8],
    stream: Option<&dyn TaskStream>,
) -> Result<(), Stopped> {
    let removed = sys::open_at(directory, name, sys::DIRECTORY, 0).and_then(|root| Walk::new(root, path));
    let mut walk = match removed {
        // An empty directory need not be readable to be removed.
        Err(error) if sys::is(&error, libc::EACCES) => {
            return sys::remove_directory_at(directory, name).map_err(|_| error).doing("remove", path);
        }
        opened => opened.doing("remove", path)?,
    };
    let mut steps = 0u32;
    while let Some(step) = walk.step().doing("remove", path)? {
        steps = steps.wrapping_add(1);
        if let (Some(stream), 0) = (stream, steps % 256) {
            sys::alive(stream)?;
        }
        if step == Step::Left {
            sys::remove_directory_at(walk.directory(), walk.name()).doing("remove", walk.path())?;
            continue;
        }
        match sys::unlink_at(walk.directory(), walk.name()) {
            Ok(()) => {}
            Err(error) if sys::is(&error, libc::ENOENT) => {}
            Err(error) if sys::is(&error, libc::EISDIR) || sys::is(&error, libc::EPERM) => {
                enter(&mut walk, error)?
            }
            Err(error) => return Err(error).doing("remove", walk.path()),
        }
    }
    sys::remove_directory_at(directory, name).doing("remove", path)
}

fn enter(walk: &mut Walk, refused: std::io::Error) -> Result<(), Stopped> {
    match walk.enter() {
        Ok(()) => Ok(()),
        Err(error) if sys::is(&error, libc::EACCES) => {
            sys::remove_directory_at(walk.directory(), walk.name())
                .map_err(|_| error)
                .doing("remove", walk.path())
        }
        // Not a directory after all: what the first attempt said is the reason.
        Err(error) if sys::is(&error, libc::ENOTDIR) || sys::is(&error, libc::ELOOP) => {
            Err(refused).doing("remove", walk.path())
        }
        Err(error) => Err(error).doing("remove", walk.path()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::test_stream::{Scratch, TestStream, as_user, code, errno, fails, run};
    use super::*;

    fn request(scratch: &Scratch, name: &str, recursive: bool) -> Value {
        Value::map([("path", scratch.path(name)), ("recursive", recursive.into())])
    }

    #[test]
    fn files_links_and_trees_are_removed_and_what_links_point_to_stays() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("tree/a/b")).expect("made");
        fs::create_dir(scratch.at("safe")).expect("made");
        fs::write(scratch.at("safe/file"), "").expect("written");
        fs::write(scratch.at("tree/a/file"), "").expect("written");
        symlink(scratch.at("safe"), scratch.at("tree/a/link")).expect("linked");
        symlink("safe", scratch.at("link")).expect("linked");
        run("remove", request(&scratch, "link", true));
        assert_eq!(errno(&fails("remove", request(&scratch, "tree", false))), "ENOTEMPTY");
        run("remove", request(&scratch, "tree", true));
        assert_eq!(scratch.names(""), ["safe"]);
        run("remove", request(&scratch, "safe/file", false));
        run("remove", request(&scratch, "safe", false));
        assert_eq!(code(&fails("remove", request(&scratch, "safe", true))), "not_found");
    }

    #[test]
    fn the_root_and_what_ends_above_are_refused() {
        let scratch = Scratch::new();
        for path in ["/", "//", "/.", "/..", "/tmp/.."] {
            assert_eq!(
                code(&fails("remove", Value::map([("path", path.into()), ("recursive", true.into())]))),
                "invalid_argument"
            );
        }
        assert_eq!(code(&fails("remove", request(&scratch, "x/..", true))), "invalid_argument");
    }

    #[test]
    fn a_gone_stream_stops_it() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("tree")).expect("made");
        (0..600).for_each(|n| fs::write(scratch.at(&format!("tree/{n}")), "").expect("written"));
        let mut stream = TestStream::new();
        TestStream::vanish(&stream.gone);
        let stopped =
            super::super::run("remove", &request(&scratch, "tree", true), &mut stream).expect_err("stopped");
        assert_eq!(code(&stopped), "gone");
        assert!(scratch.names("tree").len() > 300);
    }

    #[test]
    fn a_racing_symlink_leads_nowhere() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("safe")).expect("made");
        (0..50).for_each(|n| fs::write(scratch.at(&format!("safe/{n}")), "").expect("written"));
        for _ in 0..30 {
            fs::create_dir_all(scratch.at("tree/x")).expect("made");
            let (from, safe) = (scratch.at("tree/x"), scratch.at("safe"));
            let racer = std::thread::spawn(move || {
                for _ in 0..20 {
                    let _ = fs::remove_dir(&from);
                    let _ = symlink(&safe, &from);
                    let _ = fs::remove_file(&from);
                    let _ = fs::create_dir(&from);
                }
            });
            let _ = super::super::run("remove", &request(&scratch, "tree", true), &mut TestStream::new());
            racer.join().expect("no panic");
        }
        assert_eq!(scratch.names("safe").len(), 50);
    }

    #[test]
    fn rights_decide() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("tree/sub")).expect("made");
        as_user(4321, || {
            let stopped = fails("remove", request(&scratch, "tree", true));
            assert_eq!(code(&stopped), "permission_denied");
        });
        assert_eq!(scratch.names("tree"), ["sub"]);
    }
}
