//! The fields that are reported about a file, and `stat`.

use std::ffi::CStr;
use std::os::fd::RawFd;

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::FilePath;
use super::sys::{self, Doing};

/// `stat`: one file.
pub fn stat(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let stat = path.stat(request.flag("follow")).doing("stat", path.bytes())?;
    let info = of_entry(libc::AT_FDCWD, &path.c(), path.name(), path.bytes(), &stat);
    stream.send(&Value::map([("info", info)]))
}

/// As `info`, with the target of a symlink read from `directory`.
pub fn of_entry(directory: RawFd, at: &CStr, name: &[u8], path: &[u8], stat: &libc::stat) -> Value {
    let mut info = info(name, path, stat);
    if sys::kind(stat) == libc::S_IFLNK {
        // A symlink that was replaced meanwhile has no target to tell; what was seen of it stays true.
        if let (Ok(target), Value::Map(entries)) = (sys::read_link_at(directory, at), &mut info) {
            entries.push(("target".to_owned(), Value::name(&target)));
        }
    }
    info
}

/// The map that the protocol calls `info`.
// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
pub fn info(name: &[u8], path: &[u8], stat: &libc::stat) -> Value {
    let kind = match sys::kind(stat) {
        libc::S_IFDIR => "directory",
        libc::S_IFLNK => "symlink",
        libc::S_IFIFO => "fifo",
        libc::S_IFSOCK => "socket",
        libc::S_IFBLK => "block",
        libc::S_IFCHR => "char",
        _ => "file",
    };
    let mtime_ms =
        (stat.st_mtime as i64).saturating_mul(1000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000);
    Value::map([
        ("name", Value::name(name)),
        ("path", Value::name(path)),
        ("type", kind.into()),
        ("size", Value::Int(stat.st_size as i64)),
        ("mode", Value::Int(i64::from(sys::permissions(stat)))),
        ("uid", Value::Int(i64::from(stat.st_uid))),
        ("gid", Value::Int(i64::from(stat.st_gid))),
        ("mtimeMs", Value::Int(mtime_ms)),
    ])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::test_stream::{Scratch, TestStream, code, errno, run};
    use super::*;

    #[test]
    fn stat_tells_everything_about_a_file_and_follows_only_on_request() {
        let scratch = Scratch::new();
        fs::write(scratch.at("file"), "12345").expect("written");
        fs::set_permissions(scratch.at("file"), fs::Permissions::from_mode(0o640)).expect("changed");
        symlink("file", scratch.at("link")).expect("linked");

        let info = run("stat", Value::map([("path", scratch.path("link")), ("follow", true.into())]))
            .message("info");
        assert_eq!(info.text("type"), Some("file"));
        assert_eq!(info.text("name"), Some("link"));
        assert_eq!((info.int("size"), info.int("mode")), (Some(5), Some(0o640)));
        assert!(info.int("mtimeMs").is_some_and(|ms| ms > 1_500_000_000_000));

        let info = run("stat", Value::map([("path", scratch.path("link"))])).message("info");
        assert_eq!((info.text("type"), info.text("target")), (Some("symlink"), Some("file")));
    }

    #[test]
    fn stat_reports_missing_files_loops_and_bad_paths() {
        let scratch = Scratch::new();
        symlink("loop", scratch.at("loop")).expect("linked");
        let stat = |path: Value| {
            let request = Value::map([("path", path), ("follow", true.into())]);
            super::super::run("stat", &request, &mut TestStream::new()).expect_err("fails")
        };
        assert_eq!(code(&stat(scratch.path("none"))), "not_found");
        let looping = stat(scratch.path("loop"));
        assert_eq!((code(&looping), errno(&looping)), ("invalid_argument", "ELOOP".to_owned()));
        assert_eq!(code(&stat("relative".into())), "invalid_argument");
        assert_eq!(code(&stat(Value::Null)), "invalid_argument");
    }

    #[test]
    fn names_that_are_not_text_travel_as_bytes() {
        let scratch = Scratch::new();
        let mut path = scratch.at("").as_os_str().as_bytes().to_vec();
        path.extend_from_slice(b"\xff\xfe");
        let request = Value::map([("path", Value::Bytes(path.clone()))]);
        assert!(super::super::run("stat", &request, &mut TestStream::new()).is_err());
        fs::write(std::ffi::OsStr::from_bytes(&path), "").expect("written");
        assert_eq!(
            run("stat", request).message("info").get("name"),
            Some(&Value::Bytes(b"\xff\xfe".to_vec()))
        );
    }
}
