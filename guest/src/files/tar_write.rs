//! `tar`: a tree as a POSIX pax archive.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::{self, FilePath, c_string};
use super::sys::{self, Doing, invalid, shown};
use super::tar_header::{BLOCK, Header, padding};
use super::walk::{Step, Walk};

/// Names are relative to `path`, which has no entry itself unless it is a file. Hard links become separate
/// files; sockets and devices are left out.
pub fn tar(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let wanted = wanted(request)?;
    let stat = path.stat(true).doing("archive", path.bytes())?;
    let mut archive = Archive { stream, buffer: vec![0; sys::BUFFER], filled: 0 };
    if sys::kind(&stat) != libc::S_IFDIR {
        let (directory, name) = path.followed()?.place("archive")?;
        let directory = directory.hold().doing("archive", path.bytes())?;
        let stat = sys::stat_at(directory.as_raw_fd(), &name, false).doing("archive", path.bytes())?;
        archive.entry(directory.as_raw_fd(), &name, path.name(), &stat)?;
        return archive.end();
    }
    let root = || sys::open(&path.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0).doing("archive", path.bytes());
    match wanted {
        None => archive.below(root()?, b"")?,
        Some(names) => {
            for name in names {
                archive.chosen(root()?, name)?;
            }
        }
    }
    archive.end()
}

fn wanted(request: &Value) -> Result<Option<Vec<&[u8]>>, Stopped> {
    match request.get("paths") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(paths)) => {
            let paths = paths.iter().map(|path| path.as_bytes().ok_or_else(|| invalid("A path to archive is text or bytes")));
            paths.collect::<Result<_, _>>().map(Some)
        }
        Some(_) => Err(invalid("The paths to archive are an array")),
    }
}

/// Collects what is sent into pieces of the size of the buffer.
struct Archive<'a> {
    stream: &'a mut dyn TaskStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Archive<'_> {
    /// One of the paths asked for, with everything below it. No symlink leads there.
    fn chosen(&mut self, root: OwnedFd, name: &[u8]) -> Result<(), Stopped> {
        let bad = || invalid(format!("The path \"{}\" does not stay below the directory", shown(name)));
        let parts = path::parts(name).filter(|_| name.first() != Some(&b'/')).ok_or_else(bad)?;
        let Some((last, parents)) = parts.split_last() else { return self.below(root, b"") };
        let mut directory = root;
        for part in parents {
            directory = sys::open_at(directory.as_raw_fd(), &c_string(part), sys::DIRECTORY, 0).doing("archive", name)?;
        }
        let (last, whole) = (c_string(last), parts.join(&b'/'));
        let stat = sys::stat_at(directory.as_raw_fd(), &last, false).doing("archive", name)?;
        self.entry(directory.as_raw_fd(), &last, &whole, &stat)?;
        if sys::kind(&stat) == libc::S_IFDIR {
            let below = sys::open_at(directory.as_raw_fd(), &last, sys::DIRECTORY, 0).doing("archive", name)?;
            self.below(below, &whole)?;
        }
        Ok(())
    }

    fn below(&mut self, root: OwnedFd, prefix: &[u8]) -> Result<(), Stopped> {
        let mut walk = Walk::new(root, prefix).doing("archive", prefix)?;
        while let Some(step) = walk.step().doing("archive", prefix)? {
            if step == Step::Left {
                continue;
            }
            let stat = match sys::stat_at(walk.directory(), walk.name(), false) {
                Err(error) if sys::is(&error, libc::ENOENT) => continue,
                stat => stat.doing("archive", walk.path())?,
            };
            self.entry(walk.directory(), walk.name(), walk.path(), &stat)?;
            if sys::kind(&stat) == libc::S_IFDIR {
                match walk.enter() {
                    Err(error) if sys::is(&error, libc::ENOENT) => {}
                    entered => entered.doing("archive", walk.path())?,
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, directory: RawFd, at: &CStr, name: &[u8], stat: &libc::stat) -> Result<(), Stopped> {
        match sys::kind(stat) {
            libc::S_IFREG => self.file(directory, at, name),
            libc::S_IFDIR => self.header(b'5', &[name, b"/"].concat(), b"", 0, stat),
            libc::S_IFIFO => self.header(b'6', name, b"", 0, stat),
            libc::S_IFLNK => match sys::read_link_at(directory, at) {
                Err(error) if sys::is(&error, libc::ENOENT) => Ok(()),
                target => self.header(b'2', name, &target.doing("archive", name)?, 0, stat),
            },
            _ => Ok(()),
        }
    }

    /// The header promises a size, so that many bytes follow whatever happens to the file meanwhile.
    fn file(&mut self, directory: RawFd, at: &CStr, name: &[u8]) -> Result<(), Stopped> {
        let file = match sys::open_at(directory, at, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0) {
            Err(error) if sys::is(&error, libc::ENOENT) => return Ok(()),
            file => file.doing("archive", name)?,
        };
        let stat = sys::stat_fd(&file).doing("archive", name)?;
        if sys::kind(&stat) != libc::S_IFREG {
            return Ok(());
        }
        let size = stat.st_size;
        self.header(b'0', name, b"", size, &stat)?;
        let mut offset = 0;
        while offset < size {
            let room = self.room()?;
            let wanted = room.len().min(usize::try_from(size - offset).unwrap_or(usize::MAX));
            let mut filled = sys::read_at(&file, &mut room[..wanted], offset).doing("archive", name)?;
            if filled == 0 {
                room[..wanted].fill(0);
                filled = wanted;
            }
            self.filled += filled;
            offset += filled as i64;
        }
        self.put(&[0; BLOCK][..padding(size)])
    }

    fn header(&mut self, kind: u8, name: &[u8], link: &[u8], size: i64, stat: &libc::stat) -> Result<(), Stopped> {
        let (name, link) = (name.to_vec(), link.to_vec());
        let (mode, mtime) = (sys::permissions(stat), (stat.st_mtime, 0));
        let mut bytes = Vec::with_capacity(BLOCK);
        Header { kind, name, link, mode, uid: stat.st_uid, gid: stat.st_gid, size, mtime }.encode(&mut bytes);
        self.put(&bytes)
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Stopped> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// The free part of the buffer, never empty.
    fn room(&mut self) -> Result<&mut [u8], Stopped> {
        if self.filled == self.buffer.len() {
            self.stream.send_data(&self.buffer)?;
            self.filled = 0;
        }
        Ok(&mut self.buffer[self.filled..])
    }

    fn end(mut self) -> Result<(), Stopped> {
        self.put(&[0; 2 * BLOCK])?;
        self.stream.send_data(&self.buffer[..self.filled])
    }
}

#[cfg(test)]
#[path = "tar_write_tests.rs"]
mod tests;
