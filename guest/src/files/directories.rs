//! `mkdir`, `symlink`, and the parents that other operations make on their way.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::{self, FilePath, c_string};
use super::reach::{Last, Place, Reach};
use super::sys::{self, Doing, invalid};

/// `mkdir`: a directory with its parents. One that exists already is left as it is.
pub fn mkdir(request: &Value, reach: Option<&Reach>, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let mode = path::mode(request, "mode")?;
    if matches!(path.stat(true), Ok(stat) if sys::kind(&stat) == libc::S_IFDIR) {
        return stream.send(&Value::map([("created", false.into())]));
    }
    if let Some(reach) = reach {
        let Place { directory, name, parents } = reach.place(&path, Last::Followed, true, "make")?;
        let made = match reach.make_directory(directory.as_raw_fd(), &name) {
            Err(error) if lost_race(&path, &error) => {
                parents.keep();
                return stream.send(&Value::map([("created", false.into())]));
            }
            made => made.doing("make", path.bytes())?,
        };
        mode.map_or(Ok(()), |mode| sys::change_mode(&made, mode))
            .doing("change the mode of", path.bytes())?;
        parents.keep();
        return stream.send(&Value::map([("created", true.into())]));
    }
    let (directory, name) = path.place("make")?;
    let parents = Parents::make(&directory)?;
    match sys::make_directory_at(libc::AT_FDCWD, &path.c(), 0o755) {
        Err(error) if lost_race(&path, &error) => {
            parents.keep();
            return stream.send(&Value::map([("created", false.into())]));
        }
        made => made.doing("make", path.bytes())?,
    }
    if let Some(mode) = mode {
        // The umask does not apply to a mode that was asked for.
        let changed = sys::open(&path.c(), sys::DIRECTORY, 0).and_then(|made| sys::change_mode(&made, mode));
        if let Err(error) = changed {
            let _ = directory.hold().and_then(|held| sys::remove_directory_at(held.as_raw_fd(), &name));
            return Err(error).doing("change the mode of", path.bytes());
        }
    }
    parents.keep();
    stream.send(&Value::map([("created", true.into())]))
}

/// Whether another process has made the directory since this one looked for it.
fn lost_race(path: &FilePath, error: &std::io::Error) -> bool {
    sys::is(error, libc::EEXIST) && matches!(path.stat(true), Ok(stat) if sys::kind(&stat) == libc::S_IFDIR)
}

/// `symlink`: at `path`, pointing to `target`, which need not exist.
pub fn symlink(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let target = request.bytes("target").unwrap_or_default();
    if target.is_empty() || target.contains(&0) {
        return Err(invalid("The target of a symlink is a path without NUL"));
    }
    sys::symlink_at(&c_string(target), libc::AT_FDCWD, &path.c()).doing("make the symlink", path.bytes())?;
    super::done(stream)
}

/// Directories that were missing and were created. Dropping it without `keep()` removes them again, if they
/// are still empty.
pub struct Parents {
    made: Vec<(Option<OwnedFd>, CString)>,
}

impl Parents {
    /// None was missing so far.
    pub fn none() -> Parents {
        Parents { made: Vec::new() }
    }

    /// One more was made, in a directory that is held.
    pub fn made_in(&mut self, directory: OwnedFd, name: CString) {
        self.made.push((Some(directory), name));
    }

    /// Makes `directory` and what is missing above it.
    pub fn make(directory: &FilePath) -> Result<Parents, Stopped> {
        let mut missing = Vec::new();
        let mut next = Some(directory.clone());
        while let Some(path) = next {
            match path.stat(true) {
                Ok(stat) if sys::kind(&stat) == libc::S_IFDIR => break,
                Ok(_) => return Err(sys::errno(libc::ENOTDIR)).doing("make", path.bytes()),
                Err(error) if !sys::is(&error, libc::ENOENT) => {
                    return Err(error).doing("make", path.bytes());
                }
                Err(_) => {}
            }
            next = path.parent();
            missing.push(path);
        }
        let mut parents = Parents::none();
        for path in missing.iter().rev() {
            match sys::make_directory_at(libc::AT_FDCWD, &path.c(), 0o755) {
                Ok(()) => parents.made.push((None, path.c())),
                // Another process was faster, or the path goes back up with `..`.
                Err(error) if sys::is(&error, libc::EEXIST) => {}
                Err(error) => return Err(error).doing("make", path.bytes()),
            }
        }
        Ok(parents)
    }

    /// The directories stay.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        for (directory, name) in self.made.iter().rev() {
            let _ = sys::remove_directory_at(
                directory.as_ref().map_or(libc::AT_FDCWD, |held| held.as_raw_fd()),
                name,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::test_stream::{Scratch, as_user, code, fails, run};
    use super::*;

    fn mode_of(scratch: &Scratch, name: &str) -> u32 {
        fs::metadata(scratch.at(name)).expect("there").permissions().mode() & 0o7777
    }

    #[test]
    fn mkdir_makes_parents_and_says_whether_it_made_the_directory() {
        let scratch = Scratch::new();
        let request = || Value::map([("path", scratch.path("a/b/c")), ("mode", 0o2770.into())]);
        assert_eq!(run("mkdir", request()).message("created"), true.into());
        assert_eq!((mode_of(&scratch, "a/b"), mode_of(&scratch, "a/b/c")), (0o755, 0o2770));
        assert_eq!(run("mkdir", request()).message("created"), false.into());
        assert_eq!(run("mkdir", Value::map([("path", "/".into())])).message("created"), false.into());
        let up = Value::map([("path", scratch.path("new/../other"))]);
        assert_eq!(run("mkdir", up).message("created"), true.into());
        assert_eq!(scratch.names(""), ["a", "new", "other"]);
    }

    #[test]
    fn mkdir_refuses_what_is_taken_by_something_else_and_leaves_no_parents() {
        let scratch = Scratch::new();
        fs::write(scratch.at("file"), "").expect("written");
        let mkdir = |name: &str| code(&fails("mkdir", Value::map([("path", scratch.path(name))])));
        assert_eq!(mkdir("file"), "already_exists");
        assert_eq!(mkdir("file/below"), "invalid_argument");
        assert_eq!(mkdir(&format!("p/q/{}", "x".repeat(300))), "invalid_argument");
        assert_eq!(scratch.names(""), ["file"]);
        assert_eq!(
            code(&fails("mkdir", Value::map([("path", scratch.path("m")), ("mode", 0o10000.into())]))),
            "invalid_argument"
        );
        as_user(4321, || assert_eq!(mkdir("denied/x"), "permission_denied"));
    }

    #[test]
    fn symlink_makes_dangling_links_and_refuses_taken_names() {
        let scratch = Scratch::new();
        let request = |target: &str| Value::map([("path", scratch.path("link")), ("target", target.into())]);
        run("symlink", request("../nowhere"));
        assert_eq!(fs::read_link(scratch.at("link")).expect("a link").to_str(), Some("../nowhere"));
        assert_eq!(code(&fails("symlink", request("x"))), "already_exists");
        assert_eq!(code(&fails("symlink", request(""))), "invalid_argument");
    }
}
