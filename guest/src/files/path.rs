//! Paths of requests.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::task::Stopped;
use crate::value::Value;

use super::sys::{self, Doing, invalid, shown};

/// An absolute path without empty or `.` components. `..` stays, because what it means depends on symlinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// Takes the path under `key`.
    pub fn of(request: &Value, key: &str) -> Result<FilePath, Stopped> {
        let bytes = request.bytes(key).ok_or_else(|| invalid(format!("The request has no {key}")))?;
        FilePath::parse(bytes)
    }

    /// Checks bytes from outside.
    pub fn parse(bytes: &[u8]) -> Result<FilePath, Stopped> {
        if bytes.contains(&0) {
            return Err(invalid("A path cannot contain NUL"));
        }
        if bytes.first() != Some(&b'/') {
            return Err(invalid(format!("The path \"{}\" is not absolute", shown(bytes))));
        }
        Ok(FilePath(Path::new(OsStr::from_bytes(bytes)).components().collect()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// For system calls.
    pub fn c(&self) -> CString {
        c_string(self.bytes())
    }

    /// The last component; `/` for the root.
    pub fn name(&self) -> &[u8] {
        self.bytes().rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(b"/")
    }

    /// The directory and the name in it; nothing for `/` and for what ends in `..`.
    pub fn split(&self) -> Option<(FilePath, CString)> {
        let name = self.0.file_name()?;
        Some((FilePath(self.0.parent()?.to_owned()), c_string(name.as_bytes())))
    }

    /// As `split`, telling the caller that `verb` is not possible with such a path.
    pub fn place(&self, verb: &str) -> Result<(FilePath, CString), Stopped> {
        self.split().ok_or_else(|| invalid(format!("Cannot {verb} \"{}\"", shown(self.bytes()))))
    }

    /// The path without its last component; nothing for `/`.
    pub fn parent(&self) -> Option<FilePath> {
        self.0.parent().map(|parent| FilePath(parent.to_owned()))
    }

    /// Without any symlink, `.` or `..`; all of it must exist.
    pub fn real(&self) -> io::Result<FilePath> {
        self.0.canonicalize().map(FilePath)
    }

    /// Whether this is `other` or below it, by their names alone.
    pub fn is_within(&self, other: &FilePath) -> bool {
        self.0.starts_with(&other.0)
    }

    /// A descriptor of the directory, which need not be readable, for calls relative to it.
    pub fn hold(&self) -> io::Result<std::os::fd::OwnedFd> {
        sys::open(&self.c(), libc::O_PATH | libc::O_DIRECTORY, 0)
    }

    /// `stat`.
    pub fn stat(&self, follow: bool) -> io::Result<libc::stat> {
        sys::stat_at(libc::AT_FDCWD, &self.c(), follow)
    }

    /// What this path stands for once symlinks in its last component are followed. It need not exist.
    pub fn followed(&self) -> Result<FilePath, Stopped> {
        let mut path = self.clone();
        for _ in 0..40 {
            match path.stat(false) {
                Ok(stat) if sys::kind(&stat) == libc::S_IFLNK => {}
                Err(error) if !sys::is(&error, libc::ENOENT) => {
                    return Err(error).doing("follow", self.bytes());
                }
                _ => return Ok(path),
            }
            let target = sys::read_link_at(libc::AT_FDCWD, &path.c()).doing("follow", self.bytes())?;
            let parent = path.0.parent().unwrap_or(Path::new("/"));
            path = FilePath(parent.join(OsStr::from_bytes(&target)).components().collect());
        }
        Err(sys::errno(libc::ELOOP)).doing("follow", self.bytes())
    }
}

/// Bytes that are known to be without NUL; what follows one would be cut off.
pub fn c_string(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}

/// The mode under `key`, if there is one.
pub fn mode(request: &Value, key: &str) -> Result<Option<u32>, Stopped> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Int(mode @ 0..=0o7777)) => Ok(Some(*mode as u32)),
        Some(_) => Err(invalid("A mode is a number from 0 to 07777")),
    }
}

/// The parts of a name inside an archive or below a directory: none is empty, `.` or `..`.
/// A leading `/` is dropped. `None` if a part is `..` or there is a NUL.
pub fn parts(name: &[u8]) -> Option<Vec<&[u8]>> {
    let parts: Vec<&[u8]> =
        name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if name.contains(&0) || parts.contains(&&b".."[..]) { None } else { Some(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> FilePath {
        FilePath::parse(path.as_bytes()).expect("a path")
    }

    #[test]
    fn paths_are_tidied_without_touching_what_symlinks_decide() {
        assert_eq!(parse("//a/./b//../c/").bytes(), b"/a/b/../c");
        assert_eq!(parse("/").name(), b"/");
        assert_eq!(parse("/a/b").name(), b"b");
        assert!(parse("/").split().is_none());
        assert!(parse("/a/..").split().is_none());
    }

    #[test]
    fn relative_paths_and_nul_are_refused() {
        for path in [&b"a"[..], b"", b"./a", b"/a\0b"] {
            assert!(FilePath::parse(path).is_err());
        }
    }

    #[test]
    fn parts_refuse_to_climb() {
        assert_eq!(parts(b"/a/./b/"), Some(vec![&b"a"[..], b"b"]));
        assert_eq!(parts(b"./"), Some(vec![]));
        assert_eq!(parts(b"a/../b"), None);
        assert_eq!(parts(b"a\0"), None);
        assert_eq!(parts(b"..a/b.."), Some(vec![&b"..a"[..], b"b.."]));
    }
}
