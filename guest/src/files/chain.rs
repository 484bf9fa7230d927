//! A chain of open directories, from one that a walk started in to where it is now.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::sys;

const OPEN: usize = 32;

/// Holds at most `OPEN` descriptors however deep it goes. A directory whose descriptor was given up is
/// found again through `..`, and it has to be the same one: a tree that is moved meanwhile ends the walk
/// and never leads it elsewhere.
pub struct Chain {
    levels: Vec<Level>,
}

struct Level {
    fd: Option<OwnedFd>,
    identity: (u64, u64),
}

impl Chain {
    /// Starts in `directory`.
    pub fn new(directory: OwnedFd) -> io::Result<Chain> {
        let mut chain = Chain { levels: Vec::new() };
        chain.push(directory)?;
        Ok(chain)
    }

    /// The directory at the end of the chain.
    pub fn top(&self) -> RawFd {
        self.levels.last().and_then(|level| level.fd.as_ref()).map_or(-1, |fd| fd.as_raw_fd())
    }

    /// How many directories; 1 at the start.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Goes into a directory below the top one.
    pub fn push(&mut self, directory: OwnedFd) -> io::Result<()> {
        let identity = identity(&directory)?;
        self.levels.push(Level { fd: Some(directory), identity });
        if let Some(old) = self.levels.len().checked_sub(OPEN + 1) {
            self.levels[old].fd = None;
        }
        Ok(())
    }

    /// Goes back to the directory above. Returns whether there is one.
    pub fn pop(&mut self) -> io::Result<bool> {
        let left = self.levels.pop();
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        if level.fd.is_none() {
            let child = left.and_then(|left| left.fd).ok_or_else(|| sys::errno(libc::EBADF))?;
            let parent = sys::open_at(child.as_raw_fd(), c"..", sys::DIRECTORY, 0)?;
            if identity(&parent)? != level.identity {
                return Err(sys::errno(libc::EBUSY));
            }
            level.fd = Some(parent);
        }
        Ok(true)
    }
}

// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn identity(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = sys::stat_fd(directory)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}
