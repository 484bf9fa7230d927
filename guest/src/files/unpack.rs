//! `untar`, and `unpack` of the host: unpacks an archive below a directory and never beside it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::copy::{Given, copy, give};
use super::directories::Parents;
use super::faithful::{Ids, LeftOut, Unpacking};
use super::layer::{self, Layer, Mark};
use super::path::{self, FilePath, c_string};
use super::sparse::SparseWriter;
use super::sys::{self, Doing, invalid, shown};
use super::tar_header::Header;
use super::tar_read::TarReader;

/// As many as the longest path of a system call can have.
pub const MOST_PARTS: usize = 2048;
/// Holds a directory without needing the right to read it, and never through a symlink.
const HOLD: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;

/// Unpacks as the archive comes in. What was unpacked before a failure stays, except a file that is not
/// complete.
pub fn untar(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    Parents::make(&path)?.keep();
    let root = path.hold().doing("unpack into", path.bytes())?;
    let (entries, bytes) = Unpacker::new(root, None).whole(stream)?;
    stream.send(&Value::map([("entries", Value::Int(entries)), ("bytes", Value::Int(bytes))]))
}

/// `unpack`: the same with all that `faithful.rs` tells of. Owners are given by root alone, and a hard link
/// to where none can lead becomes a file of its own.
pub fn unpack_below(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let root = path.hold().doing("unpack into", path.bytes())?;
    let (entries, bytes) = Unpacker::new(root, Some(Unpacking::new(Ids::SAME))).whole(stream)?;
    stream.send(&Value::map([("entries", Value::Int(entries)), ("bytes", Value::Int(bytes))]))
}

/// Unpacks a tree with all that `faithful.rs` tells of. `root` itself gets what the archive says about it.
pub fn unpack(root: OwnedFd, ids: Ids, stream: &mut dyn TaskStream) -> Result<LeftOut, Stopped> {
    let mut unpacker = Unpacker::new(root, Some(Unpacking::new(ids)));
    unpacker.whole(stream)?;
    Ok(unpacker.unpacking.map(|unpacking| unpacking.left_out).unwrap_or_default())
}

/// Unpacks a layer of an image over the layers below it. Symlinks among the parents of an entry are followed,
/// as image builders expect: call this only where the tree is the root directory of the process. Devices are
/// left out.
pub fn unpack_layer(
    root: OwnedFd,
    ids: Ids,
    most_entries: u64,
    stream: &mut dyn TaskStream,
) -> Result<LeftOut, Stopped> {
    let mut layered = Unpacking::new(ids);
    layered.layer = Some(Layer::new(most_entries));
    let mut unpacker = Unpacker::new(root, Some(layered));
    unpacker.whole(stream)?;
    Ok(unpacker.unpacking.map(|unpacking| unpacking.left_out).unwrap_or_default())
}

struct Unpacker {
    root: OwnedFd,
    /// The directory of the last entry, kept because the next one is mostly in it too.
    directory: Option<(Vec<Vec<u8>>, OwnedFd)>,
    /// Something was replaced that the path of `directory` may lead through.
    stale: bool,
    /// The parts of the directory that the archive is in now.
    open: Vec<Vec<u8>>,
    /// Directories above `open`, by their number of parts, that get mode and time when they are left: a
    /// directory that is read-only from the start could not be filled.
    pending: Vec<(usize, Attributes)>,
    is_root: bool,
    /// What the archive says about the root, if that is to be done.
    own: Option<Attributes>,
    unpacking: Option<Unpacking>,
}

struct Attributes {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    existed: bool,
}

impl Unpacker {
    fn new(root: OwnedFd, unpacking: Option<Unpacking>) -> Unpacker {
        Unpacker {
            root,
            directory: None,
            stale: false,
            open: Vec::new(),
            pending: Vec::new(),
            is_root: sys::is_root(),
            own: None,
            unpacking,
        }
    }

    fn whole(&mut self, stream: &mut dyn TaskStream) -> Result<(i64, i64), Stopped> {
        let unpacked = self.all(&mut TarReader::new(stream));
        let left = self.leave(&[]);
        let unpacked = unpacked?;
        left?;
        if let Some(own) = self.own.take() {
            let root = sys::open_at(self.root.as_raw_fd(), c".", sys::DIRECTORY, 0);
            root.and_then(|root| own.apply(&root)).doing("unpack", b".")?;
        }
        Ok(unpacked)
    }

    fn all(&mut self, reader: &mut TarReader) -> Result<(i64, i64), Stopped> {
        let (mut entries, mut bytes) = (0, 0i64);
        while let Some(mut header) = reader.entry()? {
            if let Some(unpacking) = &mut self.unpacking {
                unpacking.shift(&mut header)?;
            }
            if let Some(layer) = self.layer() {
                layer.count()?;
            }
            self.entry(&header, reader)?;
            entries += 1;
            bytes = bytes.saturating_add(header.size);
        }
        Ok((entries, bytes))
    }

    fn entry(&mut self, header: &Header, reader: &mut TarReader) -> Result<(), Stopped> {
        let parts = self.parts(&header.name)?;
        if std::mem::take(&mut self.stale) {
            self.directory = None;
        }
        let inside = if header.kind == b'5' { &parts[..] } else { &parts[..parts.len().saturating_sub(1)] };
        self.leave(inside)?;
        let Some((last, parents)) = parts.split_last() else {
            if header.kind != b'5' {
                return Err(refused(header, "it has no name"));
            }
            // Without `unpacking` the directory is the caller's own: its attributes stay.
            if self.unpacking.is_some() {
                self.set_attributes(header, c".", None)?;
                self.own = Some(self.attributes(header));
            }
            return Ok(());
        };
        if self.layer().is_some() {
            if let Some(mark) = layer::mark(last)? {
                reader.content(header.size, |_| Ok(()))?;
                return self.take_away(&mark, parents);
            }
            if matches!(header.kind, b'3' | b'4') {
                if let Some(unpacking) = &mut self.unpacking {
                    unpacking.left_out.files += 1;
                }
                return Ok(());
            }
        }
        let name = c_string(last);
        match header.kind {
            b'0' | b'7' => self.file(header, parents, &name, reader),
            b'5' => self.make_directory(header, &parts, &name),
            b'2' => self.symlink(header, parents, &name),
            b'1' => self.link(header, &parts, &name, reader.stream()),
            b'6' => self.fifo(header, parents, &name),
            b'3' | b'4' => Err(refused(header, "it is a device")),
            b'S' => Err(refused(header, "it is a sparse file")),
            _ => Err(refused(header, "it is of an unknown type")),
        }?;
        match self.layer() {
            Some(layer) => layer.made(&parts),
            None => Ok(()),
        }
    }

    fn layer(&mut self) -> Option<&mut Layer> {
        self.unpacking.as_mut()?.layer.as_mut()
    }

    /// How parents are opened: without the right to read them, and through symlinks in layers alone.
    fn hold(&self) -> i32 {
        let layered = self.unpacking.as_ref().is_some_and(|unpacking| unpacking.layer.is_some());
        if layered { HOLD & !libc::O_NOFOLLOW } else { HOLD }
    }

    /// Takes away what a mark of the layer says. Where the directory is not there, nothing is.
    fn take_away(&mut self, mark: &Mark, parents: &[&[u8]]) -> Result<(), Stopped> {
        // A directory that was kept open may be about to go.
        self.directory = None;
        let at = match open_existing(&self.root, parents, self.hold()) {
            Err(error) if sys::is(&error, libc::ENOENT) || sys::is(&error, libc::ENOTDIR) => return Ok(()),
            at => at.doing("take away", &parents.join(&b'/'))?,
        };
        let Some(layer) = self.layer() else { return Ok(()) };
        match mark {
            Mark::Name(name) => layer.take_away(at.as_raw_fd(), parents, name),
            Mark::Opaque => layer.empty(at.as_raw_fd(), c".", &parents.join(&b'/')),
            Mark::Note => Ok(()),
        }
    }

    /// Makes room for an entry that is not a directory. A directory is cleared away in layers alone.
    fn clear(&mut self, directory: i32, name: &CStr, header: &Header) -> Result<(), Stopped> {
        if self.layer().is_none() {
            return clear(directory, name).doing("unpack", &header.name);
        }
        self.stale |= layer::make_room(directory, name, &header.name, false)?;
        Ok(())
    }

    fn parts<'a>(&self, name: &'a [u8]) -> Result<Vec<&'a [u8]>, Stopped> {
        let outside =
            || invalid(format!("The archive's entry \"{}\" would leave the directory", shown(name)));
        path::parts(name).filter(|parts| parts.len() <= MOST_PARTS).ok_or_else(outside)
    }

    fn file(
        &mut self,
        header: &Header,
        parents: &[&[u8]],
        name: &CStr,
        reader: &mut TarReader,
    ) -> Result<(), Stopped> {
        let directory = self.directory(parents, header)?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let made = match sys::open_at(directory, name, flags, 0o600) {
            Err(error) if sys::is(&error, libc::EEXIST) => {
                self.clear(directory, name, header)?;
                sys::open_at(directory, name, flags, 0o600)
            }
            made => made,
        };
        let file = File::from(made.doing("unpack", &header.name)?);
        let unpacked = self
            .content(header, &file, reader)
            .and_then(|()| self.attributes(header).apply(&file).doing("unpack", &header.name));
        if unpacked.is_err() {
            let _ = sys::unlink_at(directory, name);
        }
        unpacked
    }

    fn content(&mut self, header: &Header, file: &File, reader: &mut TarReader) -> Result<(), Stopped> {
        let (segments, left) = match header.sparse {
            None => (vec![(0, header.size)], header.size),
            Some(real) => reader.map(header.size, real)?,
        };
        let holes = self.unpacking.is_some();
        let mut writer = SparseWriter::new(file, segments, holes);
        reader.content(left, |piece| writer.write(piece).doing("unpack", &header.name))?;
        if holes || header.sparse.is_some() {
            file.set_len(header.sparse.unwrap_or(header.size) as u64).doing("unpack", &header.name)?;
        }
        match &mut self.unpacking {
            Some(unpacking) => unpacking.set_attributes(file, header).doing("unpack", &header.name),
            None => Ok(()),
        }
    }

    /// Of a directory, by its name in another or of the root.
    fn set_attributes(&mut self, header: &Header, name: &CStr, parent: Option<i32>) -> Result<(), Stopped> {
        let Some(unpacking) = self.unpacking.as_mut().filter(|_| !header.attributes.is_empty()) else {
            return Ok(());
        };
        sys::open_at(parent.unwrap_or(self.root.as_raw_fd()), name, sys::DIRECTORY, 0)
            .and_then(|directory| unpacking.set_attributes(&directory, header))
            .doing("unpack", &header.name)
    }

    fn make_directory(&mut self, header: &Header, parts: &[&[u8]], name: &CStr) -> Result<(), Stopped> {
        let directory = self.directory(&parts[..parts.len() - 1], header)?;
        if self.layer().is_some() {
            self.stale |= layer::make_room(directory, name, &header.name, true)?;
        }
        let existed = match sys::make_directory_at(directory, name, 0o700) {
            Ok(()) => false,
            Err(error) if sys::is(&error, libc::EEXIST) => true,
            Err(error) => return Err(error).doing("unpack", &header.name),
        };
        self.set_attributes(header, name, Some(directory))?;
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
        self.clear(directory, name, header)?;
        sys::symlink_at(&c_string(&header.link), directory, name).doing("unpack", &header.name)?;
        self.finish_at(header, directory, name, libc::S_IFLNK)
    }

    fn fifo(&mut self, header: &Header, parents: &[&[u8]], name: &CStr) -> Result<(), Stopped> {
        let directory = self.directory(parents, header)?;
        self.clear(directory, name, header)?;
        sys::make_fifo_at(directory, name, header.mode & 0o777).doing("unpack", &header.name)?;
        self.finish_at(header, directory, name, libc::S_IFIFO)
    }

    fn finish_at(&self, header: &Header, directory: i32, name: &CStr, kind: u32) -> Result<(), Stopped> {
        let given = Given { uid: header.uid, gid: header.gid, modified: header.mtime };
        let finished = if self.is_root {
            give((directory, name), kind, given)
        } else {
            sys::set_modified_at(directory, name, header.mtime.0, header.mtime.1)
        };
        finished.doing("unpack", &header.name)
    }

    /// The target is looked for in the archive's directory only, by the same rules as a name.
    fn link(
        &mut self,
        header: &Header,
        parts: &[&[u8]],
        name: &CStr,
        stream: &dyn TaskStream,
    ) -> Result<(), Stopped> {
        let target = self.parts(&header.link)?;
        let Some((last, target_parents)) = target.split_last() else {
            return Err(refused(header, "it links to nothing"));
        };
        if target == parts {
            return Ok(());
        }
        let last = c_string(last);
        // Not made if it is missing: then there is nothing to link to.
        let mut from: Option<OwnedFd> = None;
        for part in target_parents {
            let at = from.as_ref().unwrap_or(&self.root).as_raw_fd();
            from = Some(
                sys::open_at(at, &c_string(part), self.hold(), 0)
                    .map_err(in_the_way)
                    .doing("link to", &header.link)?,
            );
        }
        let directory = self.directory(&parts[..parts.len() - 1], header)?;
        let from = from.as_ref().unwrap_or(&self.root).as_raw_fd();
        let stat = sys::stat_at(from, &last, false).doing("link to", &header.link)?;
        if sys::kind(&stat) == libc::S_IFDIR {
            return Err(refused(header, "it links to a directory"));
        }
        self.clear(directory, name, header)?;
        match sys::link_at(from, &last, directory, name) {
            // Of the sandbox's own directories each may be a mount of its own.
            Err(error) if sys::is(&error, libc::EXDEV) && self.unpacking.is_some() => {
                copy((from, &last), (directory, name), &header.name, stream)
            }
            linked => linked.doing("unpack", &header.name),
        }
    }

    /// Opens a directory below the root one part at a time, following no symlink, and makes what is missing.
    fn directory(&mut self, parts: &[&[u8]], header: &Header) -> Result<i32, Stopped> {
        if !matches!(&self.directory, Some((cached, _)) if cached == parts) {
            self.directory = None;
            let opened = if parts.is_empty() {
                open_existing(&self.root, &[], HOLD)
            } else {
                let owner = self.unpacking.as_ref().filter(|_| self.is_root).map(Unpacking::root);
                open_or_make(&self.root, parts, owner, self.hold())
            };
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
            let finished = open_existing(&self.root, parents, self.hold())
                .and_then(|parent| sys::open_at(parent.as_raw_fd(), &c_string(last), sys::DIRECTORY, 0))
                .and_then(|directory| attributes.apply(&directory));
            match finished {
                // A directory that existed before may have another owner; it is used as it is.
                Err(error)
                    if attributes.existed
                        && (sys::is(&error, libc::EPERM) || sys::is(&error, libc::EACCES)) => {}
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

fn open_existing(root: &OwnedFd, parts: &[&[u8]], hold: i32) -> io::Result<OwnedFd> {
    let mut directory = root.try_clone()?;
    for part in parts {
        directory = sys::open_at(directory.as_raw_fd(), &c_string(part), hold, 0)?;
    }
    Ok(directory)
}

fn open_or_make(root: &OwnedFd, parts: &[&[u8]], owner: Option<u32>, hold: i32) -> io::Result<OwnedFd> {
    let mut directory = root.try_clone()?;
    for part in parts {
        let name: CString = c_string(part);
        directory = match sys::open_at(directory.as_raw_fd(), &name, hold, 0) {
            Err(error) if sys::is(&error, libc::ENOENT) => {
                sys::make_directory_at(directory.as_raw_fd(), &name, 0o755)?;
                if let Some(owner) = owner {
                    sys::change_owner_at(directory.as_raw_fd(), &name, owner, owner)?;
                }
                sys::open_at(directory.as_raw_fd(), &name, hold, 0)?
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
