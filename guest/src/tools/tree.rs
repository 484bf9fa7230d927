//! A walk through a tree by several threads, which leaves out what `.gitignore` files name.
//!
//! No symlink is followed: every directory is opened by its name in the directory above it. Few descriptors
//! are held, however deep and wide the tree is. The calling thread begins alone and gets helpers when there
//! is enough to do for them; they inherit its rights.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use crate::files::path::{FilePath, c_string};
use crate::files::sys;

use super::ignore::{IgnoreFiles, Layer, VERSION_CONTROL};
use super::{Bounds, Over};

const MOST_THREADS: usize = 4;
/// Names that one thread looks at before it asks for help.
const ALONE: usize = 192;
/// Files that one thread takes at a time.
const FILES: usize = 48;
const MOST_HELD: usize = 256;
const MOST_JOBS: usize = 200_000;
/// Names of one directory that are held at a time, in bytes.
const NAMES: usize = 1024 * 1024;
const LONGEST_PATH: usize = 16 * 1024;
const STACK: usize = 256 * 1024;

/// A regular file that was met.
pub struct Found<'a> {
    pub directory: RawFd,
    pub name: &'a CStr,
    /// From the root of the walk, without a `/` at its start.
    pub path: &'a [u8],
}

/// What is done with files. Each thread has one of its own.
pub trait Visitor: Send {
    /// False ends the walk of all threads.
    fn file(&mut self, found: &Found<'_>) -> bool;
    /// A name that is no directory and no regular file.
    fn other(&mut self, _found: &Found<'_>) -> bool {
        true
    }
    /// Whether a directory is walked at all.
    fn enters(&self, _path: &[u8]) -> bool {
        true
    }
}

/// How a walk went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    pub over: Option<Over>,
    /// Something was left out because the tree is too large.
    pub incomplete: bool,
}

/// Walks `root` and returns the visitors of all threads.
pub fn walk<V: Visitor>(
    root: &FilePath,
    respect_ignore: bool,
    bounds: Bounds,
    make: impl Fn() -> V,
) -> io::Result<(Vec<V>, Walked)> {
    let opened = sys::open(&root.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let held = Arc::new(AtomicUsize::new(0));
    let shared = Shared {
        root: Held::new(opened, &held),
        held,
        respect_ignore,
        bounds,
        queue: Mutex::new(Queue { jobs: Vec::new(), busy: 0 }),
        changed: Condvar::new(),
        stop: AtomicBool::new(false),
        incomplete: AtomicBool::new(false),
        over: Mutex::new(None),
    };
    let layer = if respect_ignore { Layer::for_root(root) } else { None };
    lock(&shared.queue).jobs.push(Job {
        directory: Some(shared.root.clone()),
        path: Vec::new(),
        layer,
        work: Work::Root,
    });
    let mut visitors = Vec::new();
    std::thread::scope(|scope| {
        let mut first = Worker::new(&shared, make());
        let mut helpers = Vec::new();
        let mut asked = false;
        while let Some(job) = shared.next() {
            first.run(job);
            if !asked && first.looked_at > ALONE && shared.has_jobs() {
                asked = true;
                for _ in 1..threads() {
                    let mut helper = Worker::new(&shared, make());
                    let helping = move || {
                        while let Some(job) = helper.shared.next() {
                            helper.run(job);
                        }
                        helper.visitor
                    };
                    // Without helpers the walk takes longer.
                    if let Ok(thread) =
                        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, helping)
                    {
                        helpers.push(thread);
                    }
                }
            }
        }
        visitors.push(first.visitor);
        visitors.extend(helpers.into_iter().filter_map(|helper| helper.join().ok()));
    });
    let over = *lock(&shared.over);
    Ok((visitors, Walked { over, incomplete: shared.incomplete.load(Ordering::Relaxed) }))
}

fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| {
        std::thread::available_parallelism().map_or(1, |count| count.get()).clamp(1, MOST_THREADS)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An open directory that jobs share.
struct Held {
    fd: OwnedFd,
    count: Arc<AtomicUsize>,
}

impl Held {
    fn new(fd: OwnedFd, count: &Arc<AtomicUsize>) -> Arc<Held> {
        count.fetch_add(1, Ordering::Relaxed);
        Arc::new(Held { fd, count: count.clone() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Work {
    Root,
    /// The directory of this name.
    Enter(CString),
    /// These files of the directory.
    Files(Vec<CString>),
}

struct Job {
    /// The directory that the work is in; `None` if it has to be opened again from the root.
    directory: Option<Arc<Held>>,
    /// Its path from the root.
    path: Vec<u8>,
    layer: Option<Arc<Layer>>,
    work: Work,
}

struct Queue {
    jobs: Vec<Job>,
    busy: usize,
}

struct Shared {
    root: Arc<Held>,
    held: Arc<AtomicUsize>,
    respect_ignore: bool,
    bounds: Bounds,
    queue: Mutex<Queue>,
    changed: Condvar,
    stop: AtomicBool,
    incomplete: AtomicBool,
    over: Mutex<Option<Over>>,
}

impl Shared {
    /// The next job. The one that was taken before is done.
    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(job) = queue.jobs.pop() {
                queue.busy += 1;
                return Some(job);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn has_jobs(&self) -> bool {
        !lock(&self.queue).jobs.is_empty()
    }

    fn done(&self) {
        let mut queue = lock(&self.queue);
        queue.busy -= 1;
        if queue.busy == 0 && queue.jobs.is_empty() {
            self.changed.notify_all();
        }
    }

    fn add(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        if queue.jobs.len() + jobs.len() > MOST_JOBS {
            self.incomplete.store(true, Ordering::Relaxed);
            jobs.truncate(MOST_JOBS.saturating_sub(queue.jobs.len()));
        }
        queue.jobs.append(jobs);
        drop(queue);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _queue = lock(&self.queue);
        self.changed.notify_all();
    }
}

struct Worker<'a, V> {
    shared: &'a Shared,
    visitor: V,
    buffer: Vec<u8>,
    path: Vec<u8>,
    looked_at: usize,
    until_check: usize,
}

/// Names of one directory, one after the other, each with its type and a NUL at its end.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: Vec<(u32, u32, u8)>,
}

impl<'a, V: Visitor> Worker<'a, V> {
    fn new(shared: &'a Shared, visitor: V) -> Worker<'a, V> {
        let buffer = vec![0; 32 * 1024];
        Worker { shared, visitor, buffer, path: Vec::new(), looked_at: 0, until_check: 1 }
    }

    fn run(&mut self, job: Job) {
        self.work(job);
        self.shared.done();
    }

    fn work(&mut self, job: Job) {
        // What disappears or may not be read is left out.
        let directory = match &job.directory {
            Some(held) => held.clone(),
            None => match reopen(&self.shared.root.fd, &job.path) {
                Ok(fd) => Held::new(fd, &self.shared.held),
                Err(_) => return,
            },
        };
        match job.work {
            Work::Root => self.directory(&directory, &job.path, &job.layer),
            Work::Enter(name) => {
                let Ok(fd) = sys::open_at(directory.fd.as_raw_fd(), &name, sys::DIRECTORY, 0) else { return };
                drop(directory);
                let entered = Held::new(fd, &self.shared.held);
                let path = join(&job.path, name.to_bytes());
                self.directory(&entered, &path, &job.layer);
            }
            Work::Files(names) => {
                for name in &names {
                    if !self.file(directory.fd.as_raw_fd(), &job.path, name, true) {
                        return;
                    }
                }
            }
        }
    }

    fn directory(&mut self, held: &Arc<Held>, path: &[u8], above: &Option<Arc<Layer>>) {
        let fd = held.fd.as_raw_fd();
        let mut layer: Option<Option<Arc<Layer>>> = None;
        let mut files = IgnoreFiles::default();
        loop {
            let Ok((batch, complete)) = self.names(fd, &mut files) else { return };
            // The rules come before the names that they are about.
            let layer = layer.get_or_insert_with(|| {
                if !complete {
                    files = IgnoreFiles { git: true, plain: true };
                }
                if self.shared.respect_ignore && files.any() {
                    Layer::below(above, fd, path, &files)
                } else {
                    above.clone()
                }
            });
            let layer = layer.clone();
            if !self.entries(held, path, &layer, &batch) || complete {
                return;
            }
        }
    }

    /// The next names, and whether these were the last.
    fn names(&mut self, fd: RawFd, files: &mut IgnoreFiles) -> io::Result<(Batch, bool)> {
        let mut batch = Batch::default();
        while batch.bytes.len() < NAMES {
            let buffer = &mut self.buffer;
            // SAFETY: the pointer and the length describe `buffer`.
            let filled = sys::check(|| unsafe {
                libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) as i32
            })?;
            if filled <= 0 {
                return Ok((batch, true));
            }
            let mut records = &self.buffer[..filled as usize];
            // Records are: inode (8), offset (8), record length (2), type (1), name, NUL.
            while let Some(&[low, high, kind]) = records.get(16..19) {
                let length = usize::from(u16::from_ne_bytes([low, high]));
                let Some(name) =
                    records.get(19..length).and_then(|rest| CStr::from_bytes_until_nul(rest).ok())
                else {
                    return Err(sys::errno(libc::EIO));
                };
                if name != c"." && name != c".." {
                    files.note(name.to_bytes());
                    let start = batch.bytes.len() as u32;
                    batch.bytes.extend_from_slice(name.to_bytes_with_nul());
                    batch.entries.push((start, batch.bytes.len() as u32, kind));
                }
                records = &records[length..];
            }
        }
        Ok((batch, false))
    }

    fn entries(&mut self, held: &Arc<Held>, path: &[u8], layer: &Option<Arc<Layer>>, batch: &Batch) -> bool {
        let fd = held.fd.as_raw_fd();
        let mut jobs = Vec::new();
        let mut own: Vec<&CStr> = Vec::new();
        for &(start, end, kind) in &batch.entries {
            let Ok(name) = CStr::from_bytes_with_nul(&batch.bytes[start as usize..end as usize]) else {
                continue;
            };
            self.looked_at += 1;
            let kind = match kind {
                libc::DT_UNKNOWN => match sys::stat_at(fd, name, false) {
                    Ok(stat) if sys::kind(&stat) == libc::S_IFDIR => libc::DT_DIR,
                    Ok(stat) if sys::kind(&stat) == libc::S_IFREG => libc::DT_REG,
                    _ => libc::DT_LNK,
                },
                kind => kind,
            };
            self.join(path, name.to_bytes());
            let is_directory = kind == libc::DT_DIR;
            if is_directory && self.shared.respect_ignore && VERSION_CONTROL.contains(&name.to_bytes()) {
                continue;
            }
            if layer.as_ref().is_some_and(|layer| layer.ignores(&self.path, is_directory)) {
                continue;
            }
            match kind {
                libc::DT_DIR if self.path.len() > LONGEST_PATH => {
                    self.shared.incomplete.store(true, Ordering::Relaxed);
                }
                libc::DT_DIR if self.visitor.enters(&self.path) => {
                    jobs.push(self.job(held, path, layer, Work::Enter(name.to_owned())));
                }
                libc::DT_DIR => {}
                libc::DT_REG => own.push(name),
                _ => {
                    if !self.file(fd, path, name, false) {
                        return false;
                    }
                }
            }
        }
        // This thread takes some of many files, and the others take the rest.
        let mut chunks = own.chunks(FILES);
        let first = chunks.next().unwrap_or_default();
        for chunk in chunks {
            let names = chunk.iter().map(|name| (*name).to_owned()).collect();
            jobs.push(self.job(held, path, layer, Work::Files(names)));
        }
        self.shared.add(&mut jobs);
        first.iter().all(|name| self.file(fd, path, name, true))
    }

    fn job(&self, held: &Arc<Held>, path: &[u8], layer: &Option<Arc<Layer>>, work: Work) -> Job {
        let few = self.shared.held.load(Ordering::Relaxed) <= MOST_HELD;
        Job { directory: few.then(|| held.clone()), path: path.to_vec(), layer: layer.clone(), work }
    }

    fn join(&mut self, path: &[u8], name: &[u8]) {
        self.path.clear();
        self.path.extend_from_slice(path);
        if !path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
    }

    fn file(&mut self, directory: RawFd, path: &[u8], name: &CStr, regular: bool) -> bool {
        if self.shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        self.until_check -= 1;
        if self.until_check == 0 {
            self.until_check = 64;
            if let Some(over) = self.shared.bounds.over() {
                lock(&self.shared.over).get_or_insert(over);
                self.shared.end();
                return false;
            }
        }
        self.join(path, name.to_bytes());
        let found = Found { directory, name, path: &self.path };
        let go_on = if regular { self.visitor.file(&found) } else { self.visitor.other(&found) };
        if !go_on {
            self.shared.incomplete.store(true, Ordering::Relaxed);
            self.shared.end();
        }
        go_on
    }
}

/// Opens a directory below `root` name by name, because a name on the way may have become a symlink.
fn reopen(root: &OwnedFd, path: &[u8]) -> io::Result<OwnedFd> {
    let mut directory = sys::open_at(root.as_raw_fd(), c".", sys::DIRECTORY, 0)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        directory = sys::open_at(directory.as_raw_fd(), &c_string(name), sys::DIRECTORY, 0)?;
    }
    Ok(directory)
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
