//! A walk through a tree that uses no recursion, follows no symlink and holds few descriptors.

use std::ffi::CStr;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use super::chain::Chain;
use super::names::Names;
use super::sys;

/// Where a walk has come to. In both cases `directory()` and `name()` say what is meant.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A name. `enter()` goes into it.
    Entry,
    /// A directory that was entered has been left, with everything in it.
    Left,
}

/// Depth first, by the bytes of names. Holds the names of one directory per level.
pub struct Walk {
    chain: Chain,
    levels: Vec<(Names, usize)>,
    path: Vec<u8>,
    lengths: Vec<usize>,
    buffer: Vec<u8>,
}

impl Walk {
    /// Below `root`; `path` is what the paths begin with, and may be empty.
    pub fn new(root: OwnedFd, path: &[u8]) -> io::Result<Walk> {
        let mut buffer = vec![0; 32 * 1024];
        let names = Names::read(&root, &mut buffer)?;
        Ok(Walk {
            chain: Chain::new(root)?,
            levels: vec![(names, 0)],
            lengths: vec![path.len()],
            path: path.to_owned(),
            buffer,
        })
    }

    /// The next step, or `None` at the end.
    pub fn step(&mut self) -> io::Result<Option<Step>> {
        let Some((names, next)) = self.levels.last_mut() else { return Ok(None) };
        let length = self.lengths[self.lengths.len() - 1];
        if let Some(name) = names.get(*next) {
            *next += 1;
            self.path.truncate(length);
            if self.path.last().is_some_and(|last| *last != b'/') {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.to_bytes());
            return Ok(Some(Step::Entry));
        }
        self.levels.pop();
        self.lengths.pop();
        if self.levels.is_empty() {
            return Ok(None);
        }
        self.path.truncate(length);
        self.chain.pop()?;
        Ok(Some(Step::Left))
    }

    /// Goes into the directory that the last step came to; a symlink is `ENOTDIR` or `ELOOP`.
    pub fn enter(&mut self) -> io::Result<()> {
        let directory = sys::open_at(self.directory(), self.name(), sys::DIRECTORY, 0)?;
        let names = Names::read(&directory, &mut self.buffer)?;
        self.chain.push(directory)?;
        self.levels.push((names, 0));
        self.lengths.push(self.path.len());
        Ok(())
    }

    /// The directory that holds the current name.
    pub fn directory(&self) -> RawFd {
        self.chain.top()
    }

    /// The current name.
    pub fn name(&self) -> &CStr {
        self.levels.last().and_then(|(names, next)| names.get(next.wrapping_sub(1))).unwrap_or(c"")
    }

    /// The current path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// 1 for names in the root of the walk.
    pub fn depth(&self) -> usize {
        self.chain.depth()
    }
}

#[cfg(test)]
pub mod tests {
    use std::os::fd::AsRawFd;

    use super::super::test_stream::Scratch;
    use super::*;

    /// Makes `d/d/d/…`, `depth` levels of it.
    pub fn make_deep(scratch: &Scratch, depth: usize) {
        let path = super::super::path::c_string(scratch.root().as_os_str().as_encoded_bytes());
        let mut directory = sys::open(&path, sys::DIRECTORY, 0).expect("open");
        for _ in 0..depth {
            sys::make_directory_at(directory.as_raw_fd(), c"d", 0o755).expect("made");
            directory = sys::open_at(directory.as_raw_fd(), c"d", sys::DIRECTORY, 0).expect("open");
        }
    }

    #[test]
    fn a_tree_that_is_moved_away_ends_the_walk_instead_of_leading_it_elsewhere() {
        let scratch = Scratch::new();
        make_deep(&scratch, 100);
        let path = super::super::path::c_string(scratch.root().as_os_str().as_encoded_bytes());
        let mut walk = Walk::new(sys::open(&path, sys::DIRECTORY, 0).expect("open"), b"").expect("read");
        while walk.step().expect("a step") == Some(Step::Entry) {
            if walk.depth() == 100 {
                break;
            }
            walk.enter().expect("entered");
        }
        let middle = "d/".repeat(40);
        std::fs::create_dir(scratch.at("other")).expect("made");
        std::fs::rename(scratch.at(&middle), scratch.at("other/d")).expect("moved");
        let ended = std::iter::from_fn(|| Some(walk.step())).find(|step| !matches!(step, Ok(Some(_))));
        assert!(matches!(ended, Some(Err(error)) if sys::is(&error, libc::EBUSY)));
    }
}
