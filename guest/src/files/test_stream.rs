//! A stream in memory, and scratch directories, for the tests of file operations.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

/// Keeps what is sent; hands out what was given to it, then END, or `Gone` with `vanishing()`.
pub struct TestStream {
    pub messages: Arc<Mutex<Vec<Value>>>,
    pub data: Vec<u8>,
    pub data_bytes: u64,
    pub largest_data: usize,
    keep: bool,
    incoming: VecDeque<Vec<u8>>,
    vanishes: bool,
    pub gone: Arc<File>,
}

impl TestStream {
    pub fn new() -> TestStream {
        // SAFETY: a new descriptor that nobody else owns.
        let gone = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        TestStream {
            messages: Arc::default(),
            data: Vec::new(),
            data_bytes: 0,
            largest_data: 0,
            keep: true,
            incoming: VecDeque::new(),
            vanishes: false,
            gone: Arc::new(gone),
        }
    }

    pub fn with(chunks: impl IntoIterator<Item = Vec<u8>>) -> TestStream {
        TestStream { incoming: chunks.into_iter().collect(), ..TestStream::new() }
    }

    /// After the given chunks the stream is gone instead of ended.
    pub fn vanishing(mut self) -> TestStream {
        self.vanishes = true;
        self
    }

    /// Counts data without keeping it.
    pub fn counting(mut self) -> TestStream {
        self.keep = false;
        self
    }

    pub fn vanish(gone: &File) {
        (&*gone).write_all(&1u64.to_ne_bytes()).expect("an eventfd takes it");
    }

    /// What the only message holds under `key`.
    pub fn message(&self, key: &str) -> Value {
        let messages = self.messages.lock().expect("not poisoned");
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages[0].get(key).unwrap_or_else(|| panic!("no {key} in {messages:?}")).clone()
    }
}

impl TaskStream for TestStream {
    fn send(&mut self, message: &Value) -> Result<(), Stopped> {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        assert!(frame.len() <= 1_048_576, "a message of {} bytes", frame.len());
        self.messages.lock().expect("not poisoned").push(message.clone());
        Ok(())
    }

    fn send_data(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        self.largest_data = self.largest_data.max(bytes.len());
        self.data_bytes += bytes.len() as u64;
        if self.keep {
            self.data.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, Stopped> {
        match self.incoming.pop_front() {
            None if self.vanishes => Err(Stopped::Gone),
            chunk => Ok(chunk),
        }
    }

    fn gone(&self) -> RawFd {
        self.gone.as_raw_fd()
    }
}

/// Runs an operation that must succeed.
pub fn run(op: &str, request: Value) -> TestStream {
    run_with(op, request, TestStream::new())
}

pub fn run_with(op: &str, request: Value, mut stream: TestStream) -> TestStream {
    if let Err(stopped) = super::run(op, &request, &mut stream) {
        panic!("{op} {request:?}: {stopped:?}");
    }
    stream
}

/// Runs an operation that must fail.
pub fn fails(op: &str, request: Value) -> Stopped {
    super::run(op, &request, &mut TestStream::new()).expect_err("it fails")
}

pub fn code(stopped: &Stopped) -> &'static str {
    match stopped {
        Stopped::Failed(failure) => failure.code,
        Stopped::Gone => "gone",
    }
}

pub fn errno(stopped: &Stopped) -> String {
    match stopped {
        Stopped::Failed(failure) => {
            let found =
                failure.details.iter().find(|(key, _)| key == "errno").map(|(_, value)| value.clone());
            if let Some(Value::Text(name)) = found { name } else { String::new() }
        }
        Stopped::Gone => String::new(),
    }
}

/// A directory of its own for one test, removed with it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cay-files-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a scratch directory");
        Scratch(path)
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn path(&self, name: &str) -> Value {
        Value::name(self.at(name).as_os_str().as_bytes())
    }

    /// Names in a directory of it, sorted.
    pub fn names(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(name)).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::process::Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

/// A small tmpfs mounted for one test; `None`, saying why, where that is not possible.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn mount(at: PathBuf, bytes: u32) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).expect("a mount point");
        let size = format!("size={bytes}");
        let mounted =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk(at));
        }
        println!("skipped: mounting a small tmpfs needs root");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// Runs `work` on a thread with another user's rights; says why and does nothing without root.
pub fn as_user(uid: u32, work: impl FnOnce() + Send) {
    if !super::sys::is_root() {
        println!("skipped: acting as another user needs root");
        return;
    }
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // SAFETY: plain numbers. The raw calls change this thread only, which is what is wanted.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, uid, uid, uid), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
            }
            work();
        });
        worker.join().expect("the work does not panic");
    });
}
