//! `move`: renames, or copies and removes where a rename is not possible.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::copy::{Place, copy};
use super::path::FilePath;
use super::reach::{self, Reach};
use super::remove::remove_tree;
use super::sys::{self, Doing};

/// As `rename`: an existing `to` is replaced only with `overwrite`, a directory only if it is empty.
pub fn relocate(request: &Value, reach: Option<&Reach>, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let (from, to) = (FilePath::of(request, "from")?, FilePath::of(request, "to")?);
    let overwrite = request.flag("overwrite");
    let (from_held, from_name) = reach::hold(reach, &from, "move")?;
    let (to_held, to_name) = reach::hold(reach, &to, "move to")?;
    let (source, target) = ((from_held.as_raw_fd(), &*from_name), (to_held.as_raw_fd(), &*to_name));
    match sys::rename_at(source.0, source.1, target.0, target.1, overwrite) {
        Err(error) if sys::is(&error, libc::EXDEV) => {
            let to_directory = to.parent().and_then(|directory| directory.real().ok());
            let into_itself =
                matches!((from.real(), to_directory), (Ok(from), Some(to)) if to.is_within(&from));
            if into_itself {
                return Err(sys::errno(libc::EINVAL)).doing("move", from.bytes());
            }
            across(source, target, &from, overwrite, stream)?;
        }
        renamed => renamed.doing("move", from.bytes())?,
    }
    super::done(stream)
}

/// The copy gets its name when it is complete, and the original goes after that.
fn across(
    from: Place,
    to: Place,
    path: &FilePath,
    overwrite: bool,
    stream: &mut dyn TaskStream,
) -> Result<(), Stopped> {
    if !overwrite && sys::stat_at(to.0, to.1, false).is_ok() {
        return Err(sys::errno(libc::EEXIST)).doing("move", path.bytes());
    }
    let temporary = sys::temporary_name().doing("move", path.bytes())?;
    let unfinished = Unfinished { directory: to.0, name: &temporary };
    copy(from, (to.0, &temporary), path.bytes(), stream)?;
    sys::rename_at(to.0, &temporary, to.0, to.1, overwrite).doing("move", path.bytes())?;
    std::mem::forget(unfinished);
    remove_any(from, path.bytes())
}

fn remove_any((directory, name): Place, path: &[u8]) -> Result<(), Stopped> {
    let stat = sys::stat_at(directory, name, false).doing("remove", path)?;
    if sys::kind(&stat) == libc::S_IFDIR {
        return remove_tree(directory, name, path, None);
    }
    sys::unlink_at(directory, name).doing("remove", path)
}

/// Removes an incomplete copy. Holds nothing else, so that forgetting it is free.
struct Unfinished<'a> {
    directory: RawFd,
    name: &'a CStr,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let _ = remove_any((self.directory, self.name), b"");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    use super::super::test_stream::{Scratch, SmallDisk, TestStream, code, errno, fails, run};
    use super::*;

    fn request(scratch: &Scratch, from: &str, to: &str, overwrite: bool) -> Value {
        Value::map([("from", scratch.path(from)), ("to", scratch.path(to)), ("overwrite", overwrite.into())])
    }

    #[test]
    fn moving_renames_and_overwrites_only_when_asked() {
        let scratch = Scratch::new();
        fs::write(scratch.at("a"), "a").expect("written");
        fs::write(scratch.at("b"), "b").expect("written");
        fs::create_dir_all(scratch.at("dir/sub")).expect("made");
        assert_eq!(code(&fails("move", request(&scratch, "a", "b", false))), "already_exists");
        run("move", request(&scratch, "a", "b", true));
        assert_eq!(fs::read_to_string(scratch.at("b")).expect("there"), "a");
        run("move", request(&scratch, "b", "c", false));
        assert_eq!(scratch.names(""), ["c", "dir"]);
        assert_eq!(errno(&fails("move", request(&scratch, "dir", "dir/sub/x", false))), "EINVAL");
        assert_eq!(code(&fails("move", request(&scratch, "c", "none/c", false))), "not_found");
        assert_eq!(code(&fails("move", request(&scratch, "none", "x", true))), "not_found");
        assert_eq!(errno(&fails("move", request(&scratch, "c", "dir", true))), "EISDIR");
    }

    #[test]
    fn moving_across_file_systems_copies_everything_and_removes_the_original() {
        let scratch = Scratch::new();
        let Some(_disk) = SmallDisk::mount(scratch.at("disk"), 8 << 20) else { return };
        fs::create_dir_all(scratch.at("tree/sub/deeper")).expect("made");
        fs::write(scratch.at("tree/sub/file"), vec![7; 300_000]).expect("written");
        let sparse = fs::File::create(scratch.at("tree/sparse")).expect("made");
        sparse.set_len(100 << 20).expect("grown");
        symlink("sub/file", scratch.at("tree/link")).expect("linked");
        fs::set_permissions(scratch.at("tree/sub/file"), fs::Permissions::from_mode(0o4751))
            .expect("changed");
        fs::set_permissions(scratch.at("tree/sub"), fs::Permissions::from_mode(0o555)).expect("changed");
        std::os::unix::fs::chown(scratch.at("tree/sub/file"), Some(4321), Some(4322)).expect("changed");
        fs::set_permissions(scratch.at("tree/sub/file"), fs::Permissions::from_mode(0o4751))
            .expect("changed");
        let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        fs::File::open(scratch.at("tree/sub")).and_then(|file| file.set_modified(then)).expect("changed");

        run("move", request(&scratch, "tree", "disk/moved", false));
        assert_eq!(scratch.names(""), ["disk"]);
        assert_eq!(scratch.names("disk"), ["moved"]);
        let file = fs::metadata(scratch.at("disk/moved/sub/file")).expect("there");
        assert_eq!((file.len(), file.mode() & 0o7777, file.uid(), file.gid()), (300_000, 0o4751, 4321, 4322));
        let sub = fs::metadata(scratch.at("disk/moved/sub")).expect("there");
        assert_eq!((sub.mode() & 0o7777, sub.modified().expect("a time")), (0o555, then));
        assert_eq!(fs::metadata(scratch.at("disk/moved/sparse")).expect("there").len(), 100 << 20);
        assert_eq!(fs::read_link(scratch.at("disk/moved/link")).expect("a link").to_str(), Some("sub/file"));

        fs::write(scratch.at("one"), "one").expect("written");
        fs::write(scratch.at("disk/one"), "old").expect("written");
        assert_eq!(code(&fails("move", request(&scratch, "one", "disk/one", false))), "already_exists");
        run("move", request(&scratch, "one", "disk/one", true));
        assert_eq!(fs::read_to_string(scratch.at("disk/one")).expect("there"), "one");
    }

    #[test]
    fn a_link_that_is_moved_across_file_systems_keeps_its_owner_and_leaves_what_it_points_to() {
        let scratch = Scratch::new();
        let Some(_disk) = SmallDisk::mount(scratch.at("disk"), 1 << 20) else { return };
        fs::write(scratch.at("secret"), "of root").expect("written");
        symlink(scratch.at("secret"), scratch.at("link")).expect("linked");
        std::os::unix::fs::lchown(scratch.at("link"), Some(4321), Some(4322)).expect("given");
        run("move", request(&scratch, "link", "disk/link", false));
        let link = fs::symlink_metadata(scratch.at("disk/link")).expect("there");
        assert!(link.is_symlink());
        assert_eq!((link.uid(), link.gid()), (4321, 4322));
        assert_eq!(fs::metadata(scratch.at("secret")).expect("there").uid(), 0);
        assert_eq!(scratch.names(""), ["disk", "secret"]);
    }

    #[test]
    fn a_move_that_fails_or_is_abandoned_leaves_the_original_and_no_copy() {
        let scratch = Scratch::new();
        let Some(_disk) = SmallDisk::mount(scratch.at("up/disk"), 1 << 20) else { return };
        fs::create_dir(scratch.at("tree")).expect("made");
        fs::write(scratch.at("tree/a"), "a").expect("written");
        fs::write(scratch.at("tree/large"), vec![1; 3 << 20]).expect("written");
        assert_eq!(
            code(&fails("move", request(&scratch, "tree", "up/disk/tree", false))),
            "resource_exhausted"
        );
        assert_eq!(errno(&fails("move", request(&scratch, "up", "up/disk/up", false))), "EINVAL");
        let mut stream = TestStream::new();
        TestStream::vanish(&stream.gone);
        let stopped =
            super::super::run("move", &request(&scratch, "tree", "up/disk/tree", false), &mut stream);
        assert_eq!(code(&stopped.expect_err("stopped")), "gone");
        assert!(scratch.names("up/disk").is_empty());
        assert_eq!(scratch.names("tree"), ["a", "large"]);
    }
}
