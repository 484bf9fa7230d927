//! `write`: replaces a file in one step, or adds to it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::directories::Parents;
use super::info;
use super::path::{self, FilePath};
use super::reach::{Last, Place, Reach};
use super::read::check_regular;
use super::sys::{self, Doing};

/// Writes through a symlink to the file it points to. Until all of the data has arrived nobody sees any
/// of it, unless it is appended.
pub fn write(request: &Value, reach: Option<&Reach>, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let mode = path::mode(request, "mode")?;
    let exclusive = request.flag("exclusive");
    let Place { directory, name, parents } = match reach {
        Some(reach) => {
            reach.place(&path, if exclusive { Last::Itself } else { Last::Followed }, true, "write")?
        }
        None => place(&path, exclusive)?,
    };
    let existing = match sys::stat_at(directory.as_raw_fd(), &name, false) {
        Ok(_) if exclusive => return Err(sys::errno(libc::EEXIST)).doing("write", path.bytes()),
        Ok(stat) => Some(stat),
        Err(error) if sys::is(&error, libc::ENOENT) => None,
        Err(error) => return Err(error).doing("write", path.bytes()),
    };
    if let Some(stat) = &existing {
        check_regular(&path, stat, "write")?;
        check_writable(&directory, &name).doing("write", path.bytes())?;
    }
    let look = request.flag("look");
    let target = Target { path: &path, directory, name, mode, existing, exclusive, look, reach };
    let stat =
        if request.flag("append") && !exclusive { target.append(stream)? } else { target.replace(stream)? };
    parents.keep();
    stream.send(&Value::map([("info", info::info(path.name(), path.bytes(), &stat))]))
}

fn place(path: &FilePath, exclusive: bool) -> Result<Place, Stopped> {
    let real = if exclusive { path.clone() } else { path.followed()? };
    let (directory, name) = real.place("write")?;
    let parents = Parents::make(&directory)?;
    let directory = directory.hold().doing("write", path.bytes())?;
    Ok(Place { directory, name, parents })
}

/// The right to change a directory would be enough to replace a file in it; a file that the user could not
/// open for writing is still not theirs to write.
fn check_writable(directory: &OwnedFd, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` ends with NUL.
    sys::check(|| unsafe {
        libc::faccessat(directory.as_raw_fd(), name.as_ptr(), libc::W_OK, libc::AT_EACCESS)
    })
    .map(drop)
}

struct Target<'a> {
    path: &'a FilePath,
    directory: OwnedFd,
    name: CString,
    mode: Option<u32>,
    existing: Option<libc::stat>,
    exclusive: bool,
    /// The server wants to know whether the file existed, before it is replaced.
    look: bool,
    reach: Option<&'a Reach>,
}

impl Target<'_> {
    fn replace(&self, stream: &mut dyn TaskStream) -> Result<libc::stat, Stopped> {
        let directory = self.directory.as_raw_fd();
        let temporary = sys::temporary_name().doing("write", self.path.bytes())?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let file = sys::open_at(directory, &temporary, flags, 0o600).doing("write", self.path.bytes())?;
        let unfinished = Unfinished { directory, name: &temporary };
        let mut file = File::from(file);
        self.receive(&mut file, stream)?;
        if self.look {
            stream.send(&Value::map([("exists", Value::Bool(self.existing.is_some()))]))?;
        }
        self.finish(&file).doing("write", self.path.bytes())?;
        let named = if self.exclusive {
            sys::publish_at(directory, &temporary, &self.name)
        } else {
            sys::rename_at(directory, &temporary, directory, &self.name, true)
        };
        match named {
            Ok(()) => {
                std::mem::forget(unfinished);
                sys::stat_fd(&file).doing("write", self.path.bytes())
            }
            // A file that is a mount of its own cannot be renamed over.
            Err(error)
                if self.existing.is_some()
                    && (sys::is(&error, libc::EBUSY) || sys::is(&error, libc::EXDEV)) =>
            {
                self.overwrite(&file).doing("write", self.path.bytes())
            }
            Err(error) => Err(error).doing("write", self.path.bytes()),
        }
    }

    /// Gives a new file the owner and mode of the one it replaces, or those asked for.
    fn finish(&self, file: &File) -> io::Result<()> {
        if let Some(reach) = self.reach {
            reach.give(file)?;
        } else if let (Some(existing), true) = (&self.existing, sys::is_root()) {
            sys::change_owner(file, existing.st_uid, existing.st_gid)?;
        }
        let mode = self.mode.or(self.existing.as_ref().map(sys::permissions)).unwrap_or(0o644);
        sys::change_mode(file, mode)
    }

    fn overwrite(&self, complete: &File) -> io::Result<libc::stat> {
        let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_TRUNC;
        let mut file = File::from(sys::open_at(self.directory.as_raw_fd(), &self.name, flags, 0)?);
        let mut buffer = vec![0; sys::BUFFER];
        let mut offset = 0;
        loop {
            let filled = sys::read_at(complete, &mut buffer, offset)?;
            if filled == 0 {
                break;
            }
            file.write_all(&buffer[..filled])?;
            offset += filled as i64;
        }
        if let Some(mode) = self.mode {
            sys::change_mode(&file, mode)?;
        }
        sys::stat_fd(&file)
    }

    fn append(&self, stream: &mut dyn TaskStream) -> Result<libc::stat, Stopped> {
        let directory = self.directory.as_raw_fd();
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let (file, unfinished) = match sys::open_at(directory, &self.name, flags, 0) {
            Ok(file) => (file, None),
            Err(error) if sys::is(&error, libc::ENOENT) => {
                let flags = flags | libc::O_CREAT | libc::O_EXCL;
                let file =
                    sys::open_at(directory, &self.name, flags, 0o644).doing("write", self.path.bytes())?;
                self.reach.map_or(Ok(()), |reach| reach.give(&file)).doing("write", self.path.bytes())?;
                (file, Some(Unfinished { directory, name: &self.name }))
            }
            Err(error) => return Err(error).doing("write", self.path.bytes()),
        };
        check_regular(self.path, &sys::stat_fd(&file).doing("write", self.path.bytes())?, "write")?;
        let mut file = File::from(file);
        if let Some(mode) = self.mode {
            sys::change_mode(&file, mode).doing("change the mode of", self.path.bytes())?;
        }
        self.receive(&mut file, stream)?;
        std::mem::forget(unfinished);
        sys::stat_fd(&file).doing("write", self.path.bytes())
    }

    fn receive(&self, file: &mut File, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
        while let Some(chunk) = stream.receive()? {
            file.write_all(&chunk).doing("write", self.path.bytes())?;
        }
        Ok(())
    }
}

/// Removes a file that did not become what it was made for. Holds nothing else, so that forgetting it is
/// free.
struct Unfinished<'a> {
    directory: RawFd,
    name: &'a CStr,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let _ = sys::unlink_at(self.directory, self.name);
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
