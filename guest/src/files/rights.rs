//! `chmod` and `chown`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::task::{Stopped, TaskStream};
use crate::users;
use crate::value::Value;

use super::path::{self, FilePath, c_string};
use super::sys::{self, Doing, invalid};
use super::walk::{Step, Walk};

/// `chmod`: follows a symlink given as `path`; symlinks below it have no mode and are passed over.
pub fn chmod(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let mode = path::mode(request, "mode")?.ok_or_else(|| invalid("The request has no mode"))?;
    let change = |path: &FilePath| {
        let name = path.c();
        // SAFETY: `name` ends with NUL.
        sys::check(|| unsafe { libc::chmod(name.as_ptr(), mode as libc::mode_t) })
            .doing("change the mode of", path.bytes())
    };
    if request.flag("recursive") && is_directory(&path, "change the mode of")? {
        let mut root = sys::open(&path.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0);
        if matches!(&root, Err(error) if sys::is(error, libc::EACCES)) {
            // The mode that is to be set may be what makes it readable.
            change(&path)?;
            root = sys::open(&path.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0);
        }
        let walk = root.and_then(|root| Walk::new(root, path.bytes()));
        chmod_below(walk.doing("change the mode of", path.bytes())?, mode, stream)?;
    }
    change(&path)?;
    super::done(stream)
}

/// Directories last, so that a mode without rights does not lock the walk out.
fn chmod_below(mut walk: Walk, mode: u32, stream: &dyn TaskStream) -> Result<(), Stopped> {
    const VERB: &str = "change the mode of";
    while let Some(step) = walk.step().doing(VERB, walk.path())? {
        sys::alive(stream)?;
        if step == Step::Entry {
            let stat = match sys::stat_at(walk.directory(), walk.name(), false) {
                Err(error) if sys::is(&error, libc::ENOENT) => continue,
                stat => stat.doing(VERB, walk.path())?,
            };
            if sys::kind(&stat) == libc::S_IFLNK {
                continue;
            }
            if sys::kind(&stat) == libc::S_IFDIR {
                match walk.enter() {
                    Err(error) if sys::is(&error, libc::EACCES) => {
                        change_mode_at(walk.directory(), walk.name(), mode).doing(VERB, walk.path())?;
                        walk.enter().doing(VERB, walk.path())?;
                    }
                    entered => entered.doing(VERB, walk.path())?,
                }
                continue;
            }
        }
        match change_mode_at(walk.directory(), walk.name(), mode) {
            Err(error) if sys::is(&error, libc::ENOENT) => {}
            changed => changed.doing(VERB, walk.path())?,
        }
    }
    Ok(())
}

/// `fchmodat` would follow a symlink that was swapped in; a descriptor of the name itself cannot be swapped.
fn change_mode_at(directory: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    let file = sys::open_at(directory, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    if sys::kind(&sys::stat_fd(&file)?) == libc::S_IFLNK {
        return Ok(());
    }
    let itself = c_string(format!("/proc/self/fd/{}", file.as_raw_fd()).as_bytes());
    // SAFETY: `itself` ends with NUL.
    match sys::check(|| unsafe { libc::chmod(itself.as_ptr(), mode as libc::mode_t) }) {
        // Without /proc, what can be opened can still be changed.
        Err(error) if sys::is(&error, libc::ENOENT) => sys::change_mode(
            &sys::open_at(directory, name, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0)?,
            mode,
        ),
        changed => changed.map(drop),
    }
}

/// `chown`: as the command of that name, an owner without a group leaves the group as it is.
/// Follows a symlink given as `path`; symlinks below it are changed themselves.
pub fn chown(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    const VERB: &str = "change the owner of";
    let path = FilePath::of(request, "path")?;
    let owner = request.text("owner").ok_or_else(|| invalid("The request has no owner"))?;
    let identity = users::lookup(owner)?;
    let gid = if owner.contains(':') { identity.gid } else { u32::MAX };
    if request.flag("recursive") && is_directory(&path, VERB)? {
        let root = sys::open(&path.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0);
        let mut walk = root.and_then(|root| Walk::new(root, path.bytes())).doing(VERB, path.bytes())?;
        while let Some(step) = walk.step().doing(VERB, path.bytes())? {
            if step == Step::Left {
                continue;
            }
            sys::alive(stream)?;
            match sys::change_owner_at(walk.directory(), walk.name(), identity.uid, gid) {
                Err(error) if sys::is(&error, libc::ENOENT) => continue,
                changed => changed.doing(VERB, walk.path())?,
            }
            match walk.enter() {
                Err(error)
                    if ![libc::ENOTDIR, libc::ELOOP, libc::ENOENT].iter().any(|n| sys::is(&error, *n)) =>
                {
                    return Err(error).doing(VERB, walk.path());
                }
                _ => {}
            }
        }
    }
    let name = path.c();
    // SAFETY: `name` ends with NUL.
    sys::check(|| unsafe { libc::chown(name.as_ptr(), identity.uid, gid) }).doing(VERB, path.bytes())?;
    super::done(stream)
}

fn is_directory(path: &FilePath, verb: &str) -> Result<bool, Stopped> {
    Ok(sys::kind(&path.stat(true).doing(verb, path.bytes())?) == libc::S_IFDIR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::super::test_stream::{Scratch, as_user, code, fails, run};
    use super::*;

    fn tree() -> Scratch {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("tree/sub")).expect("made");
        for name in ["tree/file", "tree/sub/file", "outside"] {
            fs::write(scratch.at(name), "").expect("written");
        }
        fs::set_permissions(scratch.at("outside"), fs::Permissions::from_mode(0o644)).expect("changed");
        symlink("../outside", scratch.at("tree/link")).expect("linked");
        scratch
    }

    fn modes(scratch: &Scratch) -> Vec<u32> {
        let mode = |name: &&str| fs::metadata(scratch.at(name)).expect("there").mode() & 0o7777;
        ["tree", "tree/file", "tree/sub", "tree/sub/file", "outside"].iter().map(mode).collect()
    }

    #[test]
    fn chmod_changes_one_file_or_a_tree_but_not_through_links_in_it() {
        let scratch = tree();
        let chmod = |name: &str, mode: i64, recursive: bool| {
            run(
                "chmod",
                Value::map([
                    ("path", scratch.path(name)),
                    ("mode", mode.into()),
                    ("recursive", recursive.into()),
                ]),
            );
        };
        chmod("tree", 0o700, true);
        assert_eq!(modes(&scratch), [0o700, 0o700, 0o700, 0o700, 0o644]);
        chmod("tree/link", 0o600, true);
        chmod("tree/file", 0o4711, false);
        assert_eq!(modes(&scratch), [0o700, 0o4711, 0o700, 0o700, 0o600]);
        assert_eq!(
            code(&fails("chmod", Value::map([("path", scratch.path("none")), ("mode", 1.into())]))),
            "not_found"
        );
        assert_eq!(code(&fails("chmod", Value::map([("path", scratch.path("tree"))]))), "invalid_argument");
    }

    #[test]
    fn chmod_takes_rights_away_from_a_tree_and_gives_them_back_without_being_root() {
        if !sys::is_root() {
            println!("skipped: acting as another user needs root");
            return;
        }
        let scratch = tree();
        as_user(4321, || {
            let path = || scratch.path("tree");
            assert_eq!(
                code(&fails("chmod", Value::map([("path", path()), ("mode", 0o700.into())]))),
                "permission_denied"
            );
        });
        run(
            "chown",
            Value::map([
                ("path", scratch.path("tree")),
                ("owner", "4321:4321".into()),
                ("recursive", true.into()),
            ]),
        );
        as_user(4321, || {
            let request = |mode: i64| {
                Value::map([
                    ("path", scratch.path("tree")),
                    ("mode", mode.into()),
                    ("recursive", true.into()),
                ])
            };
            run("chmod", request(0));
            run("chmod", request(0o750));
        });
        assert_eq!(modes(&scratch)[..4], [0o750; 4]);
    }

    #[test]
    fn chown_changes_a_tree_and_the_links_in_it_themselves() {
        if !sys::is_root() {
            println!("skipped: giving files away needs root");
            return;
        }
        let scratch = tree();
        let owner = |name: &str| {
            fs::symlink_metadata(scratch.at(name)).map(|meta| (meta.uid(), meta.gid())).expect("there")
        };
        run(
            "chown",
            Value::map([
                ("path", scratch.path("tree")),
                ("owner", "4321:4322".into()),
                ("recursive", true.into()),
            ]),
        );
        for name in ["tree", "tree/file", "tree/sub", "tree/sub/file", "tree/link"] {
            assert_eq!(owner(name), (4321, 4322));
        }
        assert_eq!(owner("outside"), (0, 0));
        run("chown", Value::map([("path", scratch.path("tree")), ("owner", "5000".into())]));
        assert_eq!((owner("tree"), owner("tree/file")), ((5000, 4322), (4321, 4322)));
        assert_eq!(
            code(&fails(
                "chown",
                Value::map([("path", scratch.path("tree")), ("owner", "no-such-user".into())])
            )),
            "not_found"
        );
    }
}
