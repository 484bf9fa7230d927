//! Layers of images: what a layer takes away from those below it, and what bounds it.
//!
//! A layer is a tar archive that changes the tree of the layers below. `.wh.NAME` takes `NAME` away, and
//! `.wh..wh..opq` all that its directory had. Both are about lower layers alone: what the layer itself has
//! put there stays, whatever the order.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::RawFd;

use crate::failure::Failure;
use crate::task::Stopped;

use super::path::c_string;
use super::remove::remove_tree;
use super::sys::{self, Doing, invalid, shown};
use super::walk::{Step, Walk};

const WHITEOUT: &[u8] = b".wh.";
const META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Of all names of one layer.
const MOST_NAME_BYTES: usize = 256 << 20;

/// What a name of a layer says about the layers below.
#[derive(Debug, PartialEq, Eq)]
pub enum Mark<'a> {
    /// The name is taken away.
    Name(&'a [u8]),
    /// Everything in the directory is.
    Opaque,
    /// Notes of an old union file system.
    Note,
}

/// The mark that a name is, or `None` for the name of a file. Refuses what would take a directory itself
/// away.
pub fn mark(name: &[u8]) -> Result<Option<Mark<'_>>, Stopped> {
    let Some(rest) = name.strip_prefix(WHITEOUT) else { return Ok(None) };
    if name == OPAQUE {
        return Ok(Some(Mark::Opaque));
    }
    if name.starts_with(META) {
        return Ok(Some(Mark::Note));
    }
    match rest {
        b"" | b"." | b".." => Err(invalid(format!("The layer has a whiteout of \"{}\"", shown(rest)))),
        _ => Ok(Some(Mark::Name(rest))),
    }
}

/// While a layer is unpacked.
pub struct Layer {
    /// The paths that the layer itself has made.
    made: HashSet<Vec<u8>>,
    bytes: usize,
    entries_left: u64,
}

impl Layer {
    /// A layer of at most that many entries.
    pub fn new(most_entries: u64) -> Layer {
        Layer { made: HashSet::new(), bytes: 0, entries_left: most_entries }
    }

    /// Counts one entry.
    pub fn count(&mut self) -> Result<(), Stopped> {
        self.entries_left = self.entries_left.checked_sub(1).ok_or_else(too_many)?;
        Ok(())
    }

    /// Remembers that the layer has made this.
    pub fn made(&mut self, parts: &[&[u8]]) -> Result<(), Stopped> {
        let path = parts.join(&b'/');
        self.bytes += path.len();
        if self.bytes > MOST_NAME_BYTES {
            return Err(too_many());
        }
        self.made.insert(path);
        Ok(())
    }

    /// Takes away what lower layers have under `name` in the directory, whose path is `parents`.
    pub fn take_away(&self, directory: RawFd, parents: &[&[u8]], name: &[u8]) -> Result<(), Stopped> {
        let path = [parents, &[name]].concat().join(&b'/');
        let name = c_string(name);
        let stat = match sys::stat_at(directory, &name, false) {
            Err(error) if sys::is(&error, libc::ENOENT) => return Ok(()),
            stat => stat.doing("take away", &path)?,
        };
        if sys::kind(&stat) != libc::S_IFDIR {
            if self.made.contains(&path) {
                return Ok(());
            }
            return sys::unlink_at(directory, &name).doing("take away", &path);
        }
        self.empty(directory, &name, &path)?;
        if self.made.contains(&path) {
            return Ok(());
        }
        remove_if_empty(directory, &name, &path)
    }

    /// Takes away what lower layers have in the directory `name`.
    pub fn empty(&self, directory: RawFd, name: &CStr, path: &[u8]) -> Result<(), Stopped> {
        let mut walk = sys::open_at(directory, name, sys::DIRECTORY, 0)
            .and_then(|root| Walk::new(root, path))
            .doing("take away", path)?;
        while let Some(step) = walk.step().doing("take away", path)? {
            let own = self.made.contains(walk.path());
            if step == Step::Left {
                if !own {
                    remove_if_empty(walk.directory(), walk.name(), walk.path())?;
                }
                continue;
            }
            let refused = if own { true } else { sys::unlink_at(walk.directory(), walk.name()).is_err() };
            if !refused {
                continue;
            }
            match walk.enter() {
                Err(error) if own && (sys::is(&error, libc::ENOTDIR) || sys::is(&error, libc::ELOOP)) => {}
                // A fifo or the like that is the layer's own.
                Err(error) if own && sys::is(&error, libc::ENXIO) => {}
                entered => entered.doing("take away", walk.path())?,
            }
        }
        Ok(())
    }
}

/// Makes room for an entry, which replaces whatever is there, except a directory by a directory. Returns
/// whether something was removed.
pub fn make_room(directory: RawFd, name: &CStr, path: &[u8], for_directory: bool) -> Result<bool, Stopped> {
    let stat = match sys::stat_at(directory, name, false) {
        Err(error) if sys::is(&error, libc::ENOENT) => return Ok(false),
        stat => stat.doing("replace", path)?,
    };
    if sys::kind(&stat) != libc::S_IFDIR {
        sys::unlink_at(directory, name).doing("replace", path)?;
        return Ok(true);
    }
    if for_directory {
        return Ok(false);
    }
    remove_tree(directory, name, path, None)?;
    Ok(true)
}

/// A directory that holds what the layer has made stays.
fn remove_if_empty(directory: RawFd, name: &CStr, path: &[u8]) -> Result<(), Stopped> {
    match sys::remove_directory_at(directory, name) {
        Err(error) if sys::is(&error, libc::ENOTEMPTY) || sys::is(&error, libc::EEXIST) => Ok(()),
        removed => removed.doing("take away", path),
    }
}

fn too_many() -> Stopped {
    Failure::new("resource_exhausted", "The layer has too many entries").into()
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
