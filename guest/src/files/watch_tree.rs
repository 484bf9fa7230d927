//! The directories of one `watch`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::names::Names;
use super::path::c_string;
use super::sys;

const EVENTS: u32 = libc::IN_CREATE
    | libc::IN_DELETE
    | libc::IN_MODIFY
    | libc::IN_ATTRIB
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_EXCL_UNLINK
    | libc::IN_ONLYDIR;
/// Each costs the guest some hundred bytes, whatever the kernel allows.
const MOST: usize = 65_536;

/// A watch descriptor of the kernel.
pub type Watch = i32;

/// Stores every watched directory by its parent and name, so that moving one moves all below it.
pub struct WatchTree {
    inotify: OwnedFd,
    root: Vec<u8>,
    root_watch: Watch,
    nodes: HashMap<Watch, Node>,
    buffer: Vec<u8>,
    /// A directory could not be watched because there are too many.
    pub limited: bool,
}

struct Node {
    parent: Watch,
    name: Box<[u8]>,
}

/// How a scan treats the entries it finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Enters directories that were not watched before.
    New,
    /// Enters all directories, corrects their places, and drops those that are gone.
    Full,
}

impl WatchTree {
    /// Watches one directory, through a symlink if `root` is one.
    pub fn new(root: &[u8]) -> io::Result<WatchTree> {
        // SAFETY: no memory is passed.
        let fd = sys::check(|| unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) })?;
        // SAFETY: a new descriptor that nobody else owns.
        let inotify = unsafe { OwnedFd::from_raw_fd(fd) };
        let root_watch = add_watch(&inotify, root, EVENTS)?;
        let buffer = vec![0; 32 * 1024];
        Ok(WatchTree {
            inotify,
            root: root.to_owned(),
            root_watch,
            nodes: HashMap::new(),
            buffer,
            limited: false,
        })
    }

    /// The descriptor to wait for.
    pub fn fd(&self) -> RawFd {
        self.inotify.as_raw_fd()
    }

    /// Fills `buffer` with events; 0 when there are none now.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the pointer and the length describe `buffer`.
        match sys::check(|| unsafe { libc::read(self.fd(), buffer.as_mut_ptr().cast(), buffer.len()) as i32 })
        {
            Err(error) if sys::is(&error, libc::EAGAIN) => Ok(0),
            read => read.map(|length| length as usize),
        }
    }

    /// Whether this is the directory that the watch started with.
    pub fn is_root(&self, watch: Watch) -> bool {
        watch == self.root_watch
    }

    /// The directory that the watch started with.
    pub fn root_watch(&self) -> Watch {
        self.root_watch
    }

    /// Its path.
    pub fn root(&self) -> &[u8] {
        &self.root
    }

    /// The path of `name` in a watched directory; nothing if the directory is no longer watched.
    pub fn path(&self, watch: Watch, name: &[u8]) -> Option<Vec<u8>> {
        let mut names = vec![name];
        let mut at = watch;
        while at != self.root_watch {
            let node = self.nodes.get(&at)?;
            names.push(&node.name);
            at = node.parent;
            // An endless chain would be a bug; the guest must not hang on it.
            if names.len() > 4096 {
                return None;
            }
        }
        let mut path = self.root.clone();
        for name in names.iter().rev().filter(|name| !name.is_empty()) {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Some(path)
    }

    /// Watches a directory in a watched one. With `moved` a directory that is watched already is now found
    /// here. Returns it, and whether it is new; nothing if it is no directory or may not be read.
    pub fn add(&mut self, parent: Watch, name: &[u8], moved: bool) -> Option<(Watch, bool)> {
        let path = self.path(parent, name)?;
        let added = if self.nodes.len() >= MOST {
            Err(sys::errno(libc::ENOSPC))
        } else {
            add_watch(&self.inotify, &path, EVENTS | libc::IN_DONT_FOLLOW)
        };
        let watch = match added {
            Ok(watch) => watch,
            Err(error) => {
                self.limited |= [libc::ENOSPC, libc::ENOMEM, libc::ENAMETOOLONG]
                    .iter()
                    .any(|number| sys::is(&error, *number));
                return None;
            }
        };
        let new = watch != self.root_watch && !self.nodes.contains_key(&watch);
        if new || (moved && watch != self.root_watch) {
            self.nodes.insert(watch, Node { parent, name: name.into() });
        }
        Some((watch, new))
    }

    /// The kernel has dropped this watch.
    pub fn forget(&mut self, watch: Watch) {
        self.nodes.remove(&watch);
    }

    /// Stops watching the directory `name` in `parent` and everything below: it was moved out of the tree.
    pub fn drop_below(&mut self, parent: Watch, name: &[u8]) {
        let found = self.nodes.iter().find(|(_, node)| node.parent == parent && *node.name == *name);
        let Some(top) = found.map(|(watch, _)| *watch) else { return };
        let below: Vec<Watch> =
            self.nodes.keys().copied().filter(|watch| self.is_below(*watch, top)).collect();
        below.into_iter().for_each(|watch| self.unwatch(watch));
    }

    fn is_below(&self, watch: Watch, top: Watch) -> bool {
        let climb = std::iter::successors(Some(watch), |at| self.nodes.get(at).map(|node| node.parent));
        climb.take(4096).any(|at| at == top)
    }

    fn unwatch(&mut self, watch: Watch) {
        self.nodes.remove(&watch);
        // SAFETY: no memory is passed. A watch that is gone already is fine.
        unsafe { libc::inotify_rm_watch(self.fd(), watch) };
    }

    /// Lists a watched directory and watches the directories below it. `found` gets every path, parents
    /// first, and may stop the scan with an error.
    pub fn scan<E>(
        &mut self,
        start: Watch,
        scan: Scan,
        mut found: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut visited = HashSet::from([start]);
        let mut waiting = vec![start];
        while let Some(watch) = waiting.pop() {
            let Some(path) = self.path(watch, b"") else { continue };
            let flags = if self.is_root(watch) { libc::O_RDONLY | libc::O_DIRECTORY } else { sys::DIRECTORY };
            // An entry that is gone or not readable is skipped.
            let Ok(directory) = sys::open(&c_string(&path), flags, 0) else { continue };
            let Ok(names) = Names::read(&directory, &mut self.buffer) else { continue };
            for name in (0..).map_while(|index| names.get(index)) {
                let Ok(stat) = sys::stat_at(directory.as_raw_fd(), name, false) else { continue };
                let Some(path) = self.path(watch, name.to_bytes()) else { continue };
                found(&path)?;
                if sys::kind(&stat) != libc::S_IFDIR {
                    continue;
                }
                if let Some((below, new)) = self.add(watch, name.to_bytes(), scan == Scan::Full)
                    && (new || scan == Scan::Full)
                    && visited.insert(below)
                {
                    waiting.push(below);
                }
            }
        }
        if scan == Scan::Full {
            let lost: Vec<Watch> =
                self.nodes.keys().copied().filter(|watch| !visited.contains(watch)).collect();
            lost.into_iter().for_each(|watch| self.unwatch(watch));
        }
        Ok(())
    }
}

fn add_watch(inotify: &OwnedFd, path: &[u8], events: u32) -> io::Result<Watch> {
    let path = c_string(path);
    // SAFETY: `path` ends with NUL.
    sys::check(|| unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), events) })
}
