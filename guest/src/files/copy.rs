//! Copies a file or a tree as it is: content, modes, times, symlinks, and owners where the user may give
//! them.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use crate::task::{Stopped, TaskStream};

use super::chain::Chain;
use super::path::c_string;
use super::sys::{self, Doing, invalid, shown};
use super::walk::{Step, Walk};
use super::xattrs;

const UNFINISHED: u32 = libc::S_ISVTX | 0o700;

/// A name in an open directory.
pub type Place<'a> = (RawFd, &'a CStr);

/// Copies `from` to `to`, which must not exist. What was copied before a failure is left for the caller to
/// remove.
pub fn copy(from: Place, to: Place, path: &[u8], stream: &dyn TaskStream) -> Result<(), Stopped> {
    let mut copier = Copier { buffer: vec![0; sys::BUFFER], stream };
    let stat = sys::stat_at(from.0, from.1, false).doing("copy", path)?;
    if sys::kind(&stat) != libc::S_IFDIR {
        return copier.one(from, to, &stat, path);
    }
    let source = sys::open_at(from.0, from.1, sys::DIRECTORY, 0).doing("copy", path)?;
    let mut chain = make(to).and_then(Chain::new).doing("copy", path)?;
    let mut walk = Walk::new(source, path).doing("copy", path)?;
    while let Some(step) = walk.step().doing("copy", path)? {
        let found = sys::stat_at(walk.directory(), walk.name(), false);
        if step == Step::Left {
            let source =
                sys::open_at(walk.directory(), walk.name(), sys::DIRECTORY, 0).doing("copy", walk.path())?;
            xattrs::copy(source.as_raw_fd(), chain.top(), &mut copier.buffer);
            finish(&chain.top(), &found.doing("copy", walk.path())?).doing("copy", walk.path())?;
            chain.pop().doing("copy", walk.path())?;
            continue;
        }
        sys::alive(stream)?;
        let found = match found {
            Err(error) if sys::is(&error, libc::ENOENT) => continue,
            found => found.doing("copy", walk.path())?,
        };
        if sys::kind(&found) == libc::S_IFDIR {
            let made = make((chain.top(), walk.name())).and_then(|made| chain.push(made));
            made.and_then(|()| walk.enter()).doing("copy", walk.path())?;
        } else {
            copier.one((walk.directory(), walk.name()), (chain.top(), walk.name()), &found, walk.path())?;
        }
    }
    finish(&chain.top(), &stat).doing("copy", path)
}

/// Makes a directory with a mode that no other has. The owner of its parent could swap another directory in,
/// which would then be filled and given away; the mode tells the two apart. The directory gets its own mode
/// when it is complete.
fn make((directory, name): Place) -> io::Result<std::os::fd::OwnedFd> {
    sys::make_directory_at(directory, name, UNFINISHED)?;
    let made = sys::open_at(directory, name, sys::DIRECTORY, 0)?;
    let stat = sys::stat_fd(&made)?;
    let own = !sys::is_root() || stat.st_uid == 0 && sys::permissions(&stat) & !libc::S_ISGID == UNFINISHED;
    if own { Ok(made) } else { Err(sys::errno(libc::EBUSY)) }
}

struct Copier<'a> {
    buffer: Vec<u8>,
    stream: &'a dyn TaskStream,
}

impl Copier<'_> {
    fn one(&mut self, from: Place, to: Place, stat: &libc::stat, path: &[u8]) -> Result<(), Stopped> {
        match sys::kind(stat) {
            libc::S_IFREG => return self.file(from, to, path),
            libc::S_IFLNK => {
                let target = sys::read_link_at(from.0, from.1).doing("copy", path)?;
                sys::symlink_at(&c_string(&target), to.0, to.1).doing("copy", path)?;
            }
            libc::S_IFIFO => sys::make_fifo_at(to.0, to.1, sys::permissions(stat)).doing("copy", path)?,
            _ => return Err(invalid(format!("Cannot copy \"{}\": it is a socket or a device", shown(path)))),
        }
        if sys::is_root() {
            return give(to, sys::kind(stat), Given::of(stat)).doing("copy", path);
        }
        sys::set_modified_at(to.0, to.1, stat.st_mtime, stat.st_mtime_nsec).doing("copy", path)
    }

    /// Stretches of zeros become holes, so that a sparse file stays one.
    fn file(&mut self, from: Place, to: Place, path: &[u8]) -> Result<(), Stopped> {
        let source = sys::open_at(from.0, from.1, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0)
            .doing("copy", path)?;
        let stat = sys::stat_fd(&source).doing("copy", path)?;
        if sys::kind(&stat) != libc::S_IFREG {
            return Err(sys::errno(libc::EBUSY)).doing("copy", path);
        }
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let copy = File::from(sys::open_at(to.0, to.1, flags, 0o600).doing("copy", path)?);
        let mut offset = 0i64;
        loop {
            sys::alive(self.stream)?;
            let filled = sys::read_at(&source, &mut self.buffer, offset).doing("copy", path)?;
            if filled == 0 {
                break;
            }
            if self.buffer[..filled].iter().any(|byte| *byte != 0) {
                copy.write_all_at(&self.buffer[..filled], offset as u64).doing("copy", path)?;
            }
            offset += filled as i64;
        }
        copy.set_len(offset as u64).doing("copy", path)?;
        xattrs::copy(source.as_raw_fd(), copy.as_raw_fd(), &mut self.buffer);
        finish(&copy, &stat).doing("copy", path)
    }
}

/// Owner and modification time that a copy gets.
pub struct Given {
    pub uid: u32,
    pub gid: u32,
    pub modified: (i64, i64),
}

impl Given {
    fn of(stat: &libc::stat) -> Given {
        Given { uid: stat.st_uid, gid: stat.st_gid, modified: (stat.st_mtime, stat.st_mtime_nsec) }
    }
}

/// Gives away a symlink or a pipe that root has just made. The owner of the directory could put another file
/// in its place meanwhile, a hard link to one of root's for instance. So the name is opened once, and only
/// what root has made here is given away: a link that has no other name, or a pipe, of which only its owner
/// can make hard links. gVisor counts two names of every pipe.
pub fn give((directory, name): Place, kind: u32, given: Given) -> io::Result<()> {
    let made = sys::open_at(directory, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    let found = sys::stat_fd(&made)?;
    let alone = kind == libc::S_IFIFO || found.st_nlink == 1;
    if sys::kind(&found) != kind || found.st_uid != 0 || !alone {
        return Err(sys::errno(libc::EBUSY));
    }
    sys::change_owner_held(&made, given.uid, given.gid)?;
    let (seconds, nanoseconds) = given.modified;
    // gVisor sets times by name alone. A program that swaps the name meanwhile changes the time of a file,
    // and no more.
    sys::set_modified_held(&made, seconds, nanoseconds)
        .or_else(|_| sys::set_modified_at(directory, name, seconds, nanoseconds))
}

fn finish(copy: &impl AsRawFd, stat: &libc::stat) -> io::Result<()> {
    if sys::is_root() {
        sys::change_owner(copy, stat.st_uid, stat.st_gid)?;
    }
    sys::change_mode(copy, sys::permissions(stat))?;
    sys::set_modified(copy, stat.st_mtime, stat.st_mtime_nsec)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    use super::super::test_stream::Scratch;
    use super::*;

    const USER: u32 = 4321;

    /// Gives what is at a name to the owner of `original`, as a move across file systems does.
    fn given(scratch: &Scratch, name: &str, original: &str) -> io::Result<()> {
        let place = |name: &str| c_string(scratch.at(name).as_os_str().as_bytes());
        let stat = sys::stat_at(libc::AT_FDCWD, &place(original), false)?;
        give((libc::AT_FDCWD, &place(name)), sys::kind(&stat), Given::of(&stat))
    }

    #[test]
    fn only_what_root_has_just_made_is_given_away() {
        if !sys::is_root() {
            println!("left out: only root gives files away");
            return;
        }
        let scratch = Scratch::new();
        symlink("/nowhere", scratch.at("original")).expect("linked");
        lchown(scratch.at("original"), Some(USER), Some(USER)).expect("given");

        fs::write(scratch.at("secret"), "of root").expect("written");
        fs::hard_link(scratch.at("secret"), scratch.at("other kind")).expect("linked");
        symlink("secret", scratch.at("of root")).expect("linked");
        fs::hard_link(scratch.at("of root"), scratch.at("two names")).expect("linked");
        symlink("secret", scratch.at("of another")).expect("linked");
        lchown(scratch.at("of another"), Some(USER + 1), Some(USER + 1)).expect("given");
        for swapped in ["other kind", "two names", "of another"] {
            let owner = || fs::symlink_metadata(scratch.at(swapped)).expect("there").uid();
            let before = owner();
            let refused = given(&scratch, swapped, "original").expect_err("refused");
            assert_eq!(refused.raw_os_error(), Some(libc::EBUSY), "{swapped}");
            assert_eq!(owner(), before, "{swapped}");
        }

        symlink("secret", scratch.at("made")).expect("linked");
        given(&scratch, "made", "original").expect("given");
        let (link, file) = (fs::symlink_metadata(scratch.at("made")), fs::metadata(scratch.at("secret")));
        assert_eq!((link.expect("there").uid(), file.expect("there").uid()), (USER, 0));
    }
}
