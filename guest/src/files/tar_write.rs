//! `tar`: a tree as a POSIX pax archive.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::failure::Failure;
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::faithful::{Ids, LeftOut, Packing};
use super::path::{self, FilePath, c_string};
use super::sparse;
use super::sys::{self, Doing, invalid, shown};
use super::tar_header::{BLOCK, Header, padding};
use super::unpack::MOST_PARTS;
use super::walk::{Step, Walk};
use super::xattrs;

/// Names are relative to `path`, which has no entry itself unless it is a file. Hard links become separate
/// files; sockets and devices are left out.
pub fn tar(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let wanted = wanted(request)?;
    let stat = path.stat(true).doing("archive", path.bytes())?;
    let mut archive = Archive::new(stream, None);
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

/// A whole tree, or these paths of it and what is below them, with all that `faithful.rs` tells of.
pub fn pack(
    root: &OwnedFd,
    ids: Ids,
    paths: &[&[u8]],
    stream: &mut dyn TaskStream,
) -> Result<LeftOut, Stopped> {
    let mut archive = Archive::new(stream, Some(Packing::new(ids)));
    let open = || sys::open_at(root.as_raw_fd(), c".", sys::DIRECTORY, 0).doing("archive", b"/");
    if paths.is_empty() {
        let stat = sys::stat_fd(root).doing("archive", b"/")?;
        archive.entry(root.as_raw_fd(), c".", b".", &stat)?;
        archive.below(open()?, b"")?;
    }
    for path in paths {
        archive.chosen(open()?, path.strip_prefix(b"/").unwrap_or(path))?;
    }
    let left_out = archive.packing.take().map(|packing| packing.left_out);
    archive.end()?;
    Ok(left_out.unwrap_or_default())
}

/// `pack`: these paths below `path` and what is below them, with all that `faithful.rs` tells of but holes.
/// What its owner may not read is made readable while it is read. Directories in `except` are left out, for
/// something else is mounted there. Answered also while processes are still.
pub fn pack_below(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let names = wanted(request)?.ok_or_else(|| invalid("The request has no paths"))?;
    let mut packing = Packing::new(Ids::SAME);
    packing.sparse = false;
    let mut archive = Archive::new(stream, Some(packing));
    archive.except = request_paths(request, "except")?.unwrap_or_default();
    for name in names {
        let root = sys::open(&path.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0);
        archive.chosen(root.doing("archive", path.bytes())?, name)?;
    }
    archive.end()
}

fn wanted(request: &Value) -> Result<Option<Vec<&[u8]>>, Stopped> {
    request_paths(request, "paths")
}

fn request_paths<'a>(request: &'a Value, key: &str) -> Result<Option<Vec<&'a [u8]>>, Stopped> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(paths)) => {
            let paths = paths
                .iter()
                .map(|path| path.as_bytes().ok_or_else(|| invalid("A path to archive is text or bytes")));
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
    packing: Option<Packing>,
    /// Directories that are left out, with all that is below them.
    except: Vec<&'a [u8]>,
    attributes: Vec<u8>,
    /// The mode of the directory of the last entry, if it was made readable for a while.
    loosened: Option<u32>,
}

impl<'a> Archive<'a> {
    fn new(stream: &'a mut dyn TaskStream, packing: Option<Packing>) -> Archive<'a> {
        let attributes = vec![0; if packing.is_some() { xattrs::LARGEST } else { 0 }];
        Archive {
            stream,
            buffer: vec![0; sys::BUFFER],
            filled: 0,
            packing,
            except: Vec::new(),
            attributes,
            loosened: None,
        }
    }

    /// One of the paths asked for, with everything below it. No symlink leads there.
    fn chosen(&mut self, root: OwnedFd, name: &[u8]) -> Result<(), Stopped> {
        let bad = || invalid(format!("The path \"{}\" does not stay below the directory", shown(name)));
        let parts = path::parts(name).filter(|_| name.first() != Some(&b'/')).ok_or_else(bad)?;
        let Some((last, parents)) = parts.split_last() else { return self.below(root, b"") };
        let mut directory = root;
        for part in parents {
            directory = sys::open_at(directory.as_raw_fd(), &c_string(part), sys::DIRECTORY, 0)
                .doing("archive", name)?;
        }
        let (last, whole) = (c_string(last), parts.join(&b'/'));
        let stat = sys::stat_at(directory.as_raw_fd(), &last, false).doing("archive", name)?;
        self.entry(directory.as_raw_fd(), &last, &whole, &stat)?;
        if sys::kind(&stat) == libc::S_IFDIR {
            let below =
                sys::open_at(directory.as_raw_fd(), &last, sys::DIRECTORY, 0).doing("archive", name)?;
            self.below(below, &whole)?;
        }
        Ok(())
    }

    fn below(&mut self, root: OwnedFd, prefix: &[u8]) -> Result<(), Stopped> {
        let mut walk = Walk::new(root, prefix).doing("archive", prefix)?;
        // Directories that were made readable, innermost last.
        let mut loosened: Vec<(usize, u32)> = Vec::new();
        while let Some(step) = walk.step().doing("archive", prefix)? {
            if step == Step::Left {
                if let Some((_, mode)) = loosened.pop_if(|(depth, _)| *depth == walk.depth()) {
                    sys::change_mode_at(walk.directory(), walk.name(), mode).doing("archive", walk.path())?;
                }
                continue;
            }
            let stat = match sys::stat_at(walk.directory(), walk.name(), false) {
                Err(error) if sys::is(&error, libc::ENOENT) => continue,
                stat => stat.doing("archive", walk.path())?,
            };
            if self.except.contains(&walk.path()) {
                continue;
            }
            self.entry(walk.directory(), walk.name(), walk.path(), &stat)?;
            if let Some(mode) = self.loosened.take() {
                loosened.push((walk.depth(), mode));
            }
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
        let kind = sys::kind(stat);
        if let Some(packing) = &mut self.packing {
            if name.len() / 2 >= MOST_PARTS && name.split(|byte| *byte == b'/').count() > MOST_PARTS {
                let message = format!(
                    "Cannot archive \"{}\": it is more than {MOST_PARTS} directories deep",
                    shown(name)
                );
                return Err(Failure::new("failed_precondition", message).into());
            }
            if !matches!(kind, libc::S_IFREG | libc::S_IFDIR | libc::S_IFIFO | libc::S_IFLNK) {
                packing.left_out.files += 1;
            } else if let Some(earlier) = packing.earlier(name, stat) {
                return self.header(
                    Header { kind: b'1', name: name.to_vec(), link: earlier, ..Header::default() },
                    stat,
                );
            }
        }
        match kind {
            libc::S_IFREG => self.file(directory, at, name, stat),
            libc::S_IFDIR => {
                let mut header = Header { kind: b'5', name: [name, b"/"].concat(), ..Header::default() };
                if let Some(packing) = &mut self.packing {
                    let (opened, was) =
                        open_own(directory, at, sys::DIRECTORY, stat).doing("archive", name)?;
                    self.loosened = was;
                    header.attributes = packing.attributes(&opened, &mut self.attributes);
                }
                self.header(header, stat)
            }
            libc::S_IFIFO => {
                self.header(Header { kind: b'6', name: name.to_vec(), ..Header::default() }, stat)
            }
            libc::S_IFLNK => match sys::read_link_at(directory, at) {
                Err(error) if sys::is(&error, libc::ENOENT) => Ok(()),
                target => self.header(
                    Header {
                        kind: b'2',
                        name: name.to_vec(),
                        link: target.doing("archive", name)?,
                        ..Header::default()
                    },
                    stat,
                ),
            },
            _ => Ok(()),
        }
    }

    /// The header promises a size, so that many bytes follow whatever happens to the file meanwhile.
    fn file(&mut self, directory: RawFd, at: &CStr, name: &[u8], found: &libc::stat) -> Result<(), Stopped> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened = match &self.packing {
            Some(_) => open_own(directory, at, flags, found),
            None => sys::open_at(directory, at, flags, 0).map(|file| (file, None)),
        };
        let file = match opened {
            Err(error) if sys::is(&error, libc::ENOENT) => return Ok(()),
            opened => {
                let (file, was) = opened.doing("archive", name)?;
                if let Some(mode) = was {
                    sys::change_mode(&file, mode).doing("archive", name)?;
                }
                file
            }
        };
        let stat = sys::stat_fd(&file).doing("archive", name)?;
        if sys::kind(&stat) != libc::S_IFREG {
            return Ok(());
        }
        let size = stat.st_size;
        let mut header = Header { kind: b'0', name: name.to_vec(), size, ..Header::default() };
        let mut segments = vec![(0, size)];
        let mut map = Vec::new();
        if let Some(packing) = &mut self.packing {
            header.attributes = packing.attributes(&file, &mut self.attributes);
            if packing.sparse && stat.st_blocks < size / BLOCK as i64 {
                segments = sparse::segments(&file, size).doing("archive", name)?;
                map = sparse::map(&segments, size);
                header.sparse = Some(size);
                header.size = map.len() as i64 + segments.iter().map(|(_, length)| length).sum::<i64>();
            }
        }
        let written = header.size;
        self.header(header, &stat)?;
        self.put(&map)?;
        for (start, length) in segments {
            self.content(&file, start, start + length, name)?;
        }
        self.put(&[0; BLOCK][..padding(written)])
    }

    fn content(&mut self, file: &OwnedFd, mut offset: i64, end: i64, name: &[u8]) -> Result<(), Stopped> {
        while offset < end {
            let room = self.room()?;
            let wanted = room.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            let mut filled = sys::read_at(file, &mut room[..wanted], offset).doing("archive", name)?;
            if filled == 0 {
                room[..wanted].fill(0);
                filled = wanted;
            }
            self.filled += filled;
            offset += filled as i64;
        }
        Ok(())
    }

    /// Owner, mode and time are the file's.
    fn header(&mut self, header: Header, stat: &libc::stat) -> Result<(), Stopped> {
        let (uid, gid) =
            self.packing.as_mut().map_or((stat.st_uid, stat.st_gid), |packing| packing.owner(stat));
        let mtime = (stat.st_mtime, if self.packing.is_some() { stat.st_mtime_nsec } else { 0 });
        let mut bytes = Vec::with_capacity(BLOCK);
        Header { mode: sys::permissions(stat), uid, gid, mtime, ..header }.encode(&mut bytes);
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

/// Opens what is found there. What its owner may not read gets a mode that lets them: then the mode that it
/// had is returned too, for the caller to give back.
fn open_own(
    directory: RawFd,
    at: &CStr,
    flags: i32,
    found: &libc::stat,
) -> std::io::Result<(OwnedFd, Option<u32>)> {
    match sys::open_at(directory, at, flags, 0) {
        // A symlink is none of these, and never followed.
        Err(error)
            if sys::is(&error, libc::EACCES)
                && !sys::is_root()
                && matches!(sys::kind(found), libc::S_IFREG | libc::S_IFDIR) =>
        {
            let mode = sys::permissions(found);
            sys::change_mode_at(directory, at, mode | 0o500)?;
            let opened = sys::open_at(directory, at, flags, 0);
            if opened.is_err() {
                let _ = sys::change_mode_at(directory, at, mode);
            }
            Ok((opened?, Some(mode)))
        }
        opened => Ok((opened?, None)),
    }
}

#[cfg(test)]
#[path = "tar_write_tests.rs"]
mod tests;
