//! Whole files that tools change: read with a bound, replaced in one step.

use std::os::fd::RawFd;

use crate::failure::Failure;
use crate::files::path::FilePath;
use crate::files::read::check_regular;
use crate::files::sys::{self, Doing, shown};
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

/// Of a file that a tool changes.
pub const LARGEST: usize = 16 * 1024 * 1024;

/// A file as it was when it was read.
pub struct Contents {
    pub bytes: Vec<u8>,
    version: Version,
}

#[derive(PartialEq, Eq)]
struct Version {
    inode: u64,
    size: i64,
    modified: (i64, i64),
}

impl Contents {
    /// Rejects what is larger than `LARGEST`, and what is no regular file.
    pub fn read(path: &FilePath, verb: &str) -> Result<Contents, Stopped> {
        check_regular(path, &path.stat(true).doing(verb, path.bytes())?, verb)?;
        let file = sys::open(&path.c(), libc::O_RDONLY | libc::O_NONBLOCK, 0).doing(verb, path.bytes())?;
        let stat = sys::stat_fd(&file).doing(verb, path.bytes())?;
        check_regular(path, &stat, verb)?;
        let too_large = || {
            Failure::new(
                "invalid_argument",
                format!("Cannot {verb} \"{}\": it has more than {LARGEST} bytes", shown(path.bytes())),
            )
        };
        if stat.st_size > LARGEST as i64 {
            return Err(too_large().into());
        }
        let mut bytes = vec![0; stat.st_size as usize + 1];
        let mut filled = 0;
        loop {
            let read = sys::read_at(&file, &mut bytes[filled..], filled as i64).doing(verb, path.bytes())?;
            if read == 0 {
                break;
            }
            filled += read;
            if filled > LARGEST {
                return Err(too_large().into());
            }
            if filled == bytes.len() {
                bytes.resize(bytes.len() * 2, 0);
            }
        }
        bytes.truncate(filled);
        Ok(Contents { bytes, version: version(&stat) })
    }

    /// Replaces the file, unless another has changed it since it was read. Its mode and owner stay.
    pub fn replace(
        &self,
        path: &FilePath,
        bytes: &[u8],
        user: &Value,
        stream: &dyn TaskStream,
    ) -> Result<(), Stopped> {
        let now = path.stat(true).doing("change", path.bytes())?;
        if version(&now) != self.version {
            return Err(Failure::new(
                "conflict",
                format!("\"{}\" was changed by another while it was edited", shown(path.bytes())),
            )
            .into());
        }
        write(path, bytes, user, stream)
    }
}

// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn version(stat: &libc::stat) -> Version {
    Version {
        inode: stat.st_ino as u64,
        size: stat.st_size as i64,
        modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
    }
}

/// Writes a file as the operation `write` does: parents are made, symlinks written through, and nobody sees a
/// part of it.
pub fn write(path: &FilePath, bytes: &[u8], request: &Value, stream: &dyn TaskStream) -> Result<(), Stopped> {
    let mut given = Given { bytes: Some(bytes.to_vec()), gone: stream.gone() };
    let user = request.get("user").cloned().unwrap_or(Value::Null);
    let write = Value::map([("path", Value::name(path.bytes())), ("user", user)]);
    crate::files::run("write", &write, &mut given)
}

/// Removes a file, not a directory.
pub fn remove(path: &FilePath) -> Result<(), Stopped> {
    let stat = path.stat(false).doing("remove", path.bytes())?;
    if sys::kind(&stat) == libc::S_IFDIR {
        return Err(sys::errno(libc::EISDIR)).doing("remove", path.bytes());
    }
    let (directory, name) = path.place("remove")?;
    let held = directory.hold().doing("remove", path.bytes())?;
    sys::unlink_at(std::os::fd::AsRawFd::as_raw_fd(&held), &name).doing("remove", path.bytes())
}

/// A stream that gives what is already there.
struct Given {
    bytes: Option<Vec<u8>>,
    gone: RawFd,
}

impl TaskStream for Given {
    fn send(&mut self, _: &Value) -> Result<(), Stopped> {
        Ok(())
    }

    fn send_data(&mut self, _: &[u8]) -> Result<(), Stopped> {
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, Stopped> {
        Ok(self.bytes.take().filter(|bytes| !bytes.is_empty()))
    }

    fn gone(&self) -> RawFd {
        self.gone
    }
}
