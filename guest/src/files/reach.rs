//! `reach`: root's rights on behalf of a user, for callers who control the whole sandbox.
//!
//! New files belong to the user from the start. Paths are walked by descriptors, one name at a time. A
//! symlink that root does not own may have been made to redirect root: from there on only the user's rights
//! apply.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::task::Stopped;
use crate::users::Identity;

use super::directories::Parents;
use super::path::{FilePath, c_string};
use super::sys::{self, Doing};

const MAX_LINKS: usize = 40;
/// How many times a walk retries because another process made the directory since it looked.
const MAX_RACES: usize = 100;
const KEEP: u32 = u32::MAX;
/// The mode of a directory between its creation and its change of owner.
const UNGIVEN: u32 = libc::S_ISVTX;
/// What a new directory inherits from its parent.
const INHERITED: u32 = libc::S_ISGID;

/// The thread that has it is root's until `give_up()`.
pub struct Reach {
    user: Identity,
    given_up: Cell<bool>,
}

/// A name in an open directory, and the directories that were created for it.
pub struct Place {
    pub directory: OwnedFd,
    pub name: CString,
    pub parents: Parents,
}

/// Where a walk ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// At the name itself, which may be a symlink.
    Itself,
    /// At the target of the name, which need not exist.
    Followed,
}

impl Reach {
    /// For a thread with root's rights.
    pub fn new(user: Identity) -> Reach {
        Reach { user, given_up: Cell::new(false) }
    }

    /// Continues with the user's rights only, permanently.
    pub fn give_up(&self) -> io::Result<()> {
        if !self.given_up.replace(true) {
            take(&self.user.groups, [self.user.gid; 3], [self.user.uid; 3])?;
        }
        Ok(())
    }

    /// Whether what is made by this thread is root's.
    pub fn makes_as_root(&self) -> bool {
        !self.given_up.get()
    }

    /// Gives the user a file that this thread has just made.
    pub fn give(&self, file: &impl AsRawFd) -> io::Result<()> {
        if self.makes_as_root() { sys::change_owner(file, self.user.uid, self.user.gid) } else { Ok(()) }
    }

    /// Finds the place of `path`. With `make` directories that are missing on the way are made.
    pub fn place(&self, path: &FilePath, last: Last, make: bool, verb: &str) -> Result<Place, Stopped> {
        path.place(verb)?;
        self.walk(path, last, make).doing(verb, path.bytes())
    }

    /// Opens what is there for reading.
    pub fn open(&self, path: &FilePath, verb: &str) -> Result<OwnedFd, Stopped> {
        let place = self.place(path, Last::Followed, false, verb)?;
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        sys::open_at(place.directory.as_raw_fd(), &place.name, flags, 0).doing(verb, path.bytes())
    }

    fn walk(&self, path: &FilePath, last: Last, make: bool) -> io::Result<Place> {
        let mut directory = root()?;
        let mut parents = Parents::none();
        let mut ahead: VecDeque<CString> = names(path.bytes()).collect();
        let mut links = 0;
        let mut races = 0;
        while let Some(name) = ahead.pop_front() {
            let at_end = ahead.is_empty();
            if at_end && last == Last::Itself {
                return Ok(Place { directory, name, parents });
            }
            let found = match sys::open_at(directory.as_raw_fd(), &name, libc::O_PATH | libc::O_NOFOLLOW, 0) {
                Err(error) if sys::is(&error, libc::ENOENT) && at_end => {
                    return Ok(Place { directory, name, parents });
                }
                Err(error) if sys::is(&error, libc::ENOENT) && make => {
                    match self.make_directory(directory.as_raw_fd(), &name) {
                        Ok(made) => parents.made_in(std::mem::replace(&mut directory, made), name),
                        // Another writer was faster. What it made is looked at like everything else.
                        Err(error) if sys::is(&error, libc::EEXIST) && races < MAX_RACES => {
                            races += 1;
                            ahead.push_front(name);
                        }
                        Err(error) => return Err(error),
                    }
                    continue;
                }
                found => found?,
            };
            let stat = sys::stat_fd(&found)?;
            match sys::kind(&stat) {
                libc::S_IFLNK => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(sys::errno(libc::ELOOP));
                    }
                    if stat.st_uid != 0 {
                        self.give_up()?;
                    }
                    let target = sys::read_link_at(found.as_raw_fd(), c"")?;
                    if target.first() == Some(&b'/') {
                        directory = root()?;
                    }
                    names(&target).rev().for_each(|name| ahead.push_front(name));
                    if ahead.is_empty() {
                        // The link leads to the root itself.
                        return Err(sys::errno(libc::EISDIR));
                    }
                }
                _ if at_end => return Ok(Place { directory, name, parents }),
                libc::S_IFDIR => directory = found,
                _ => return Err(sys::errno(libc::ENOTDIR)),
            }
        }
        Err(sys::errno(libc::EINVAL))
    }

    /// Creates a directory that belongs to the user. It is created with the user's rights where they suffice,
    /// so that no other can be swapped in before the change of owner. Elsewhere only root could do that.
    pub fn make_directory(&self, directory: RawFd, name: &CStr) -> io::Result<OwnedFd> {
        let open = || sys::open_at(directory, name, sys::DIRECTORY, 0);
        if !self.makes_as_root() {
            return sys::make_directory_at(directory, name, 0o755).and_then(|()| open());
        }
        match self.as_user(|| sys::make_directory_at(directory, name, 0o755))? {
            Ok(()) => return open(),
            Err(error) if sys::is(&error, libc::EACCES) || sys::is(&error, libc::EPERM) => {}
            Err(error) => return Err(error),
        }
        sys::make_directory_at(directory, name, UNGIVEN)?;
        let made = open()?;
        let stat = sys::stat_fd(&made)?;
        // The owner of the parent could swap in another directory of root; but none has this mode, and only
        // root can set it.
        if stat.st_uid != 0 || sys::permissions(&stat) & !INHERITED != UNGIVEN {
            return Err(sys::errno(libc::EBUSY));
        }
        self.give(&made)?;
        sys::change_mode(&made, 0o755 | sys::permissions(&stat) & INHERITED)?;
        Ok(made)
    }

    /// Runs one operation with the user's rights and returns to root. The real and the saved id stay root's.
    fn as_user<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<io::Result<T>> {
        let result = take(&self.user.groups, [KEEP, self.user.gid, KEEP], [KEEP, self.user.uid, KEEP])
            .map(|()| work());
        // SAFETY: no memory is passed. The user's id goes first, because only root may change the rest.
        let back = sys::check(|| unsafe { libc::syscall(libc::SYS_setresuid, KEEP, 0, KEEP) as i32 });
        back.and_then(|_| take(&[], [KEEP, 0, KEEP], [KEEP; 3]))?;
        result
    }
}

/// Changes the ids of this thread alone: real, effective and saved.
fn take(groups: &[u32], gids: [u32; 3], uids: [u32; 3]) -> io::Result<()> {
    // SAFETY: the groups live for the call. The raw calls change one thread, those of the C library all.
    unsafe {
        sys::check(|| libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) as i32)?;
        sys::check(|| libc::syscall(libc::SYS_setresgid, gids[0], gids[1], gids[2]) as i32)?;
        sys::check(|| libc::syscall(libc::SYS_setresuid, uids[0], uids[1], uids[2]) as i32).map(drop)
    }
}

/// Holds the directory of `path`, by the reach if there is one, else by the thread's own rights.
pub fn hold(reach: Option<&Reach>, path: &FilePath, verb: &str) -> Result<(OwnedFd, CString), Stopped> {
    if let Some(reach) = reach {
        return reach.place(path, Last::Itself, false, verb).map(|place| (place.directory, place.name));
    }
    let (directory, name) = path.place(verb)?;
    Ok((directory.hold().doing(verb, path.bytes())?, name))
}

fn root() -> io::Result<OwnedFd> {
    sys::open(c"/", libc::O_PATH | libc::O_DIRECTORY, 0)
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = CString> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(c_string)
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
