//! `untar`: unpacks an archive below a directory and never beside it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::directories::Parents;
use super::path::{self, FilePath, c_string};
use super::sys::{self, Doing, invalid, shown};
use super::tar_header::Header;
use super::tar_read::TarReader;

/// As many as the longest path of a system call can have.
const MOST_PARTS: usize = 2048;
/// Holds a directory without needing the right to read it, and never through a symlink.
const HOLD: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;

/// Unpacks as the archive comes in. What was unpacked before a failure stays, except a file that is not complete.
pub fn untar(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    Parents::make(&path)?.keep();
    let root = path.hold().doing("unpack into", path.bytes())?;
    let mut unpacker = Unpacker { root, directory: None, open: Vec::new(), pending: Vec::new(), is_root: sys::is_root() };
    let unpacked = unpacker.all(&mut TarReader::new(stream));
    let left = unpacker.leave(&[]);
    let (entries, bytes) = unpacked?;
    left?;
    stream.send(&Value::map([("entries", Value::Int(entries)), ("bytes", Value::Int(bytes))]))
}

struct Unpacker {
    root: OwnedFd,
    /// The directory of the last entry, kept because the next one is mostly in it too.
    directory: Option<(Vec<Vec<u8>>, OwnedFd)>,
    /// The parts of the directory that the archive is in now.
    open: Vec<Vec<u8>>,
    /// Directories above `open`, by their number of parts, that get mode and time when they are left: a
    /// directory that is read-only from the start could not be filled.
    pending: Vec<(usize, Attributes)>,
    is_root: bool,
}

struct Attributes {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    existed: bool,
}

impl Unpacker {
    fn all(&mut self, reader: &mut TarReader) -> Result<(i64, i64), Stopped> {
        let (mut entries, mut bytes) = (0, 0i64);
        while let Some(header) = reader.entry()? {
            self.entry(&header, reader)?;
            entries += 1;
            bytes = bytes.saturating_add(header.size);
        }
        Ok((entries, bytes))
    }

    fn entry(&mut self, header: &Header, reader: &mut TarReader) -> Result<(), Stopped> {
        let parts = self.parts(&header.name)?;
        let inside = if header.kind == b'5' { &parts[..] } else { &parts[..parts.len().saturating_sub(1)] };
        self.leave(inside)?;
        let Some((last, parents)) = parts.split_last() else {
            // The directory itself belongs to whoever asked.
            return if header.kind == b'5' { Ok(()) } else { Err(refused(header, "it has no name")) };
        };
        let name = c_string(last);
        match header.kind {
            b'0' | b'7' => self.file(header, parents, &name, reader),
            b'5' => self.make_directory(header, &parts, &name),
            b'2' => self.symlink(header, parents, &name),
            b'1' => self.link(header, &parts, &name),
            b'6' => self.fifo(header, parents, &name),
            b'3' | b'4' => Err(refused(header, "it is a device")),
            b'S' => Err(refused(header, "it is a sparse file")),
            _ => Err(refused(header, "it is of an unknown type")),
        }
    }

    fn parts<'a>(&self, name: &'a [u8]) -> Result<Vec<&'a [u8]>, Stopped> {
        let outside = || invalid(format!("The archive's entry \"{}\" would leave the directory", shown(name)));
        path::parts(name).filter(|parts| parts.len() <= MOST_PARTS).ok_or_else(outside)
    }

    fn file(&mut self, header: &Header, parents: &[&[u8]], name: &CStr, reader: &mut TarReader) -> Result<(), Stopped> {
        let directory = self.directory(parents, header)?;
        clear(directory, name).doing("unpack", &header.name)?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let mut file = File::from(sys::open_at(directory, name, flags, 0o600).doing("unpack", &header.name)?);
        let unpacked = reader
            .content(header.size, |piece| file.write_all(piece).doing("unpack", &header.name))
            .and_then(|()| self.attributes(header).apply(&file).doing("unpack", &header.name));
        if unpacked.is_err() {
            let _ = sys::unlink_at(directory, name);
        }
        unpacked
    }

    fn make_directory(&mut self, header: &Header, parts: &[&[u8]], name: &CStr) -> Result<(), Stopped> {
        let directory = self.directory(&parts[..parts.len() - 1], header)?;
        let existed = match sys::make_directory_at(directory, name, 0o700) {
            Ok(()) => false,
            Err(error) if sys::is(&error, libc::EEXIST) => true,
            Err(error) => return Err(error).doing("unpack", &header.name),
        };
        // Whatever is there already must be a directory and not a symlink to one.
        self.directory(parts, header)?;
        let attributes = Attributes { existed, ..self.attributes(header) };
        self.pending.retain(|(length, _)| *length < parts.len());
        self.pending.push((parts.len(), attributes));
        self.open = parts.iter().map(|part| part.to_vec()).collect();
        Ok(())
    }

    fn symlink(&mut self, header: &Header, parents: &[&[u8]], name: &CStr) -> Result<(), Stopped> {
        if header.link.is_empty() || header.link.contains(&0) {
            return Err(refused(header, "it points nowhere"));
        }
        let directory = self.directory(parents, header)?;
        clear(directory, name).doing("unpack", &header.name)?;
        sys::symlink_at(&c_string(&header.link), directory, name).doing("unpack", &header.name)?;
        self.finish_at(header, directory, name)
    }

    fn fifo(&mut self, header: &Header, parents: &[&[u8]], name: &CStr) -> Result<(), Stopped> {
        let directory = self.directory(parents, header)?;
        clear(directory, name).doing("unpack", &header.name)?;
        sys::make_fifo_at(directory, name, header.mode & 0o777).doing("unpack", &header.name)?;
        self.finish_at(header, directory, name)
    }

    fn finish_at(&self, header: &Header, directory: i32, name: &CStr) -> Result<(), Stopped> {
        if self.is_root {
            sys::change_owner_at(directory, name, header.uid, header.gid).doing("unpack", &header.name)?;
        }
        sys::set_modified_at(directory, name, header.mtime.0, header.mtime.1).doing("unpack", &header.name)
    }

    /// The target is looked for in the archive's directory only, by the same rules as a name.
    fn link(&mut self, header: &Header, parts: &[&[u8]], name: &CStr) -> Result<(), Stopped> {
        let target = self.parts(&header.link)?;
        let Some((last, target_parents)) = target.split_last() else { return Err(refused(header, "it links to nothing")) };
        if target == parts {
            return Ok(());
        }
        let last = c_string(last);
        // Not made if it is missing: then there is nothing to link to.
        let mut from: Option<OwnedFd> = None;
        for part in target_parents {
            let at = from.as_ref().unwrap_or(&self.root).as_raw_fd();
            from = Some(sys::open_at(at, &c_string(part), HOLD, 0).map_err(in_the_way).doing("link to", &header.link)?);
        }
        let directory = self.directory(&parts[..parts.len() - 1], header)?;
        let from = from.as_ref().unwrap_or(&self.root).as_raw_fd();
        let stat = sys::stat_at(from, &last, false).doing("link to", &header.link)?;
        if sys::kind(&stat) == libc::S_IFDIR {
            return Err(refused(header, "it links to a directory"));
        }
        clear(directory, name).doing("unpack", &header.name)?;
        sys::link_at(from, &last, directory, name).doing("unpack", &header.name)
    }

    /// Opens a directory below the root one part at a time, following no symlink, and makes what is missing.
    fn directory(&mut self, parts: &[&[u8]], header: &Header) -> Result<i32, Stopped> {
        if !matches!(&self.directory, Some((cached, _)) if cached == parts) {
            self.directory = None;
            let opened = if parts.is_empty() { open_existing(&self.root, &[]) } else { open_or_make(&self.root, parts) };
            let opened = opened.map_err(in_the_way).doing("unpack", &header.name)?;
            self.directory = Some((parts.iter().map(|part| part.to_vec()).collect(), opened));
        }
        Ok(self.directory.as_ref().map_or(-1, |(_, fd)| fd.as_raw_fd()))
    }

    /// Finishes the directories that `inside` is not in.
    fn leave(&mut self, inside: &[&[u8]]) -> Result<(), Stopped> {
        let common = self.open.iter().zip(inside).take_while(|(open, inside)| open == *inside).count();
        while let Some((length, attributes)) = self.pending.pop_if(|(length, _)| *length > common) {
            let parts: Vec<&[u8]> = self.open[..length].iter().map(Vec::as_slice).collect();
            let Some((last, parents)) = parts.split_last() else { continue };
            let finished = open_existing(&self.root, parents)
                .and_then(|parent| sys::open_at(parent.as_raw_fd(), &c_string(last), sys::DIRECTORY, 0))
                .and_then(|directory| attributes.apply(&directory));
            match finished {
                // A directory that was there before may be somebody else's; it is used as it is.
                Err(error) if attributes.existed && (sys::is(&error, libc::EPERM) || sys::is(&error, libc::EACCES)) => {}
                finished => finished.doing("unpack", &parts.join(&b'/'))?,
            }
        }
        self.open.truncate(common);
        Ok(())
    }

    /// Set-user-id and the like are root's to give.
    fn attributes(&self, header: &Header) -> Attributes {
        let mode = if self.is_root { header.mode } else { header.mode & !0o6000 };
        let owner = if self.is_root { (header.uid, header.gid) } else { (u32::MAX, u32::MAX) };
        Attributes { mode, owner, mtime: header.mtime, existed: false }
    }
}

impl Attributes {
    fn apply(&self, file: &impl AsRawFd) -> io::Result<()> {
        if self.owner.0 != u32::MAX {
            sys::change_owner(file, self.owner.0, self.owner.1)?;
        }
        sys::change_mode(file, self.mode)?;
        sys::set_modified(file, self.mtime.0, self.mtime.1)
    }
}

fn open_existing(root: &OwnedFd, parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let mut directory = root.try_clone()?;
    for part in parts {
        directory = sys::open_at(directory.as_raw_fd(), &c_string(part), HOLD, 0)?;
    }
    Ok(directory)
}

fn open_or_make(root: &OwnedFd, parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let mut directory = root.try_clone()?;
    for part in parts {
        let name: CString = c_string(part);
        directory = match sys::open_at(directory.as_raw_fd(), &name, HOLD, 0) {
            Err(error) if sys::is(&error, libc::ENOENT) => {
                sys::make_directory_at(directory.as_raw_fd(), &name, 0o755)?;
                sys::open_at(directory.as_raw_fd(), &name, HOLD, 0)?
            }
            opened => opened?,
        };
    }
    Ok(directory)
}

/// A symlink where a directory has to be looks like either, depending on the kernel.
fn in_the_way(error: io::Error) -> io::Error {
    if sys::is(&error, libc::ELOOP) { sys::errno(libc::ENOTDIR) } else { error }
}

/// Makes room for an entry. A directory is not cleared away for it.
fn clear(directory: i32, name: &CStr) -> io::Result<()> {
    match sys::unlink_at(directory, name) {
        Err(error) if sys::is(&error, libc::ENOENT) => Ok(()),
        cleared => cleared,
    }
}

fn refused(header: &Header, reason: &str) -> Stopped {
    invalid(format!("Cannot unpack \"{}\": {reason}", shown(&header.name)))
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
