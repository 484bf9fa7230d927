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
use super::read::check_regular;
use super::sys::{self, Doing};

/// Writes through a symlink to the file it points to. Until all of the data has arrived nobody sees any
/// of it, unless it is appended.
pub fn write(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let mode = path::mode(request, "mode")?;
    let exclusive = request.flag("exclusive");
    let real = if exclusive { path.clone() } else { path.followed()? };
    let existing = match real.stat(false) {
        Ok(_) if exclusive => return Err(sys::errno(libc::EEXIST)).doing("write", path.bytes()),
        Ok(stat) => Some(stat),
        Err(error) if sys::is(&error, libc::ENOENT) => None,
        Err(error) => return Err(error).doing("write", path.bytes()),
    };
    let (directory, name) = real.place("write")?;
    if let Some(stat) = &existing {
        check_regular(&path, stat, "write")?;
        check_writable(&real)?;
    }
    let parents = Parents::make(&directory)?;
    let held = directory.hold().doing("write", path.bytes())?;
    let target = Target { path: &path, directory: held, name, mode, existing, exclusive };
    let stat = if request.flag("append") && !exclusive { target.append(stream)? } else { target.replace(stream)? };
    parents.keep();
    stream.send(&Value::map([("info", info::info(path.name(), path.bytes(), &stat))]))
}

/// The right to change a directory would be enough to replace a file in it; a file that the user could not
/// open for writing is still not theirs to write.
fn check_writable(path: &FilePath) -> Result<(), Stopped> {
    let name = path.c();
    // SAFETY: `name` ends with NUL.
    sys::check(|| unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::W_OK, libc::AT_EACCESS) })
        .doing("write", path.bytes())
        .map(drop)
}

struct Target<'a> {
    path: &'a FilePath,
    directory: OwnedFd,
    name: CString,
    mode: Option<u32>,
    existing: Option<libc::stat>,
    exclusive: bool,
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
        self.finish(&file).doing("write", self.path.bytes())?;
        match sys::rename_at(directory, &temporary, directory, &self.name, !self.exclusive) {
            Ok(()) => {
                std::mem::forget(unfinished);
                sys::stat_fd(&file).doing("write", self.path.bytes())
            }
            // A file that is a mount of its own cannot be renamed over.
            Err(error) if self.existing.is_some() && (sys::is(&error, libc::EBUSY) || sys::is(&error, libc::EXDEV)) => {
                self.overwrite(&file).doing("write", self.path.bytes())
            }
            Err(error) => Err(error).doing("write", self.path.bytes()),
        }
    }

    /// Gives a new file the owner and mode of the one it replaces, or those asked for.
    fn finish(&self, file: &File) -> io::Result<()> {
        if let (Some(existing), true) = (&self.existing, sys::is_root()) {
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
                let file = sys::open_at(directory, &self.name, flags, 0o644).doing("write", self.path.bytes())?;
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

/// Removes a file that did not become what it was made for. Holds nothing else, so that forgetting it is free.
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
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::super::test_stream::{Scratch, SmallDisk, TestStream, as_user, code, errno, run_with};
    use super::*;

    fn request(scratch: &Scratch, name: &str, extra: &[(&str, Value)]) -> Value {
        let mut entries = vec![("path".to_owned(), scratch.path(name))];
        entries.extend(extra.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        Value::Map(entries)
    }

    fn chunks(texts: &[&str]) -> TestStream {
        TestStream::with(texts.iter().map(|text| text.as_bytes().to_vec()))
    }

    fn put(scratch: &Scratch, name: &str, texts: &[&str], extra: &[(&str, Value)]) -> Value {
        run_with("write", request(scratch, name, extra), chunks(texts)).message("info")
    }

    fn refused(scratch: &Scratch, name: &str, extra: &[(&str, Value)]) -> Stopped {
        super::super::run("write", &request(scratch, name, extra), &mut chunks(&["x"])).expect_err("refused")
    }

    fn content(scratch: &Scratch, name: &str) -> String {
        fs::read_to_string(scratch.at(name)).expect("readable")
    }

    #[test]
    fn a_file_is_made_with_its_parents_and_replaced_keeping_mode_and_owner() {
        let scratch = Scratch::new();
        let info = put(&scratch, "a/b/file", &["hello ", "world"], &[]);
        assert_eq!((info.int("size"), info.int("mode"), info.text("name")), (Some(11), Some(0o644), Some("file")));
        fs::set_permissions(scratch.at("a/b/file"), fs::Permissions::from_mode(0o751)).expect("changed");
        if sys::is_root() {
            std::os::unix::fs::chown(scratch.at("a/b/file"), Some(4321), Some(4322)).expect("changed");
        } else {
            println!("skipped in part: giving files away needs root");
        }
        let before = fs::metadata(scratch.at("a/b/file")).expect("there");
        assert_eq!(put(&scratch, "a/b/file", &[], &[]).int("size"), Some(0));
        let after = fs::metadata(scratch.at("a/b/file")).expect("there");
        assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
        assert_ne!(after.ino(), before.ino());
        assert_eq!(put(&scratch, "a/b/file", &["x"], &[("mode", 0o4700.into())]).int("mode"), Some(0o4700));
        assert_eq!(scratch.names("a/b"), ["file"]);
    }

    #[test]
    fn append_adds_in_place_and_exclusive_refuses_what_is_taken() {
        let scratch = Scratch::new();
        let append = [("append", Value::Bool(true))];
        put(&scratch, "log", &["one "], &append);
        let inode = fs::metadata(scratch.at("log")).expect("there").ino();
        assert_eq!(put(&scratch, "log", &["two"], &append).int("size"), Some(7));
        assert_eq!((content(&scratch, "log").as_str(), fs::metadata(scratch.at("log")).expect("there").ino()), ("one two", inode));
        let exclusive = [("exclusive", Value::Bool(true))];
        assert_eq!(errno(&refused(&scratch, "log", &exclusive)), "EEXIST");
        symlink("nowhere", scratch.at("dangling")).expect("linked");
        assert_eq!(errno(&refused(&scratch, "dangling", &exclusive)), "EEXIST");
        put(&scratch, "fresh", &["x"], &exclusive);
        assert_eq!(scratch.names(""), ["dangling", "fresh", "log"]);
    }

    #[test]
    fn symlinks_are_written_through() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("real")).expect("made");
        fs::write(scratch.at("real/file"), "old").expect("written");
        symlink("real/file", scratch.at("one")).expect("linked");
        symlink("one", scratch.at("two")).expect("linked");
        symlink("real/new", scratch.at("dangling")).expect("linked");
        symlink("loop", scratch.at("loop")).expect("linked");
        put(&scratch, "two", &["new"], &[]);
        put(&scratch, "dangling", &["made"], &[]);
        put(&scratch, "two", &["er"], &[("append", true.into())]);
        assert_eq!((content(&scratch, "real/file").as_str(), content(&scratch, "real/new").as_str()), ("newer", "made"));
        assert!(fs::symlink_metadata(scratch.at("two")).expect("there").is_symlink());
        assert_eq!(errno(&refused(&scratch, "loop", &[])), "ELOOP");
        assert_eq!(scratch.names("real"), ["file", "new"]);
    }

    #[test]
    fn a_stream_that_goes_away_leaves_nothing_new() {
        let scratch = Scratch::new();
        fs::write(scratch.at("file"), "old").expect("written");
        for (name, append) in [("file", false), ("new/parents/file", false), ("other/file", true)] {
            let request = request(&scratch, name, &[("append", append.into())]);
            let stopped = super::super::run("write", &request, &mut chunks(&["part"]).vanishing()).expect_err("gone");
            assert_eq!(code(&stopped), "gone");
        }
        assert_eq!(scratch.names(""), ["file"]);
        assert_eq!(content(&scratch, "file"), "old");
    }

    #[test]
    fn directories_devices_and_names_that_are_none_are_refused() {
        let scratch = Scratch::new();
        fs::write(scratch.at("file"), "").expect("written");
        assert_eq!(errno(&refused(&scratch, "", &[])), "EISDIR");
        assert_eq!(errno(&refused(&scratch, "file/below", &[])), "ENOTDIR");
        assert_eq!(code(&refused(&scratch, "missing/..", &[])), "invalid_argument");
        assert_eq!(code(&refused(&scratch, "../../../../../dev/null", &[])), "invalid_argument");
        assert_eq!(code(&refused(&scratch, &"x".repeat(300), &[])), "invalid_argument");
        assert_eq!(code(&refused(&scratch, "file", &[("mode", (-1).into())])), "invalid_argument");
        assert_eq!(scratch.names(""), ["file"]);
    }

    #[test]
    fn a_full_disk_is_reported_and_leaves_the_old_file_alone() {
        let scratch = Scratch::new();
        let Some(_disk) = SmallDisk::mount(scratch.at("disk"), 1 << 20) else { return };
        fs::write(scratch.at("disk/file"), "old").expect("written");
        for name in ["disk/file", "disk/sub/file"] {
            let mut stream = TestStream::with((0..20).map(|_| vec![1; 100_000]));
            let stopped = super::super::run("write", &request(&scratch, name, &[]), &mut stream).expect_err("full");
            assert_eq!((code(&stopped), errno(&stopped).as_str()), ("resource_exhausted", "ENOSPC"));
        }
        assert_eq!(scratch.names("disk"), ["file"]);
        assert_eq!(content(&scratch, "disk/file"), "old");
    }

    #[test]
    fn a_file_that_is_a_mount_is_written_in_place() {
        let scratch = Scratch::new();
        fs::write(scratch.at("source"), "source is longer").expect("written");
        fs::write(scratch.at("target"), "target").expect("written");
        let mount = |args: &[&str]| std::process::Command::new(args[0]).args(&args[1..]).status().is_ok_and(|status| status.success());
        let (source, target) = (scratch.at("source").display().to_string(), scratch.at("target").display().to_string());
        if !sys::is_root() || !mount(&["mount", "--bind", &source, &target]) {
            println!("skipped: a bind mount needs root");
            return;
        }
        put(&scratch, "target", &["new"], &[]);
        let names = scratch.names("");
        assert!(mount(&["umount", &target]));
        assert_eq!(content(&scratch, "source"), "new");
        assert_eq!(names, ["source", "target"]);
    }

    #[test]
    fn files_beyond_four_gigabytes_are_appended_to() {
        let scratch = Scratch::new();
        fs::File::create(scratch.at("large")).and_then(|file| file.set_len(5_000_000_000)).expect("made");
        assert_eq!(put(&scratch, "large", &["end"], &[("append", true.into())]).int("size"), Some(5_000_000_003));
    }

    #[test]
    fn a_file_that_the_user_may_not_write_is_not_replaced_either() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("shared")).expect("made");
        fs::set_permissions(scratch.at("shared"), fs::Permissions::from_mode(0o777)).expect("changed");
        fs::write(scratch.at("shared/file"), "root's").expect("written");
        as_user(4321, || {
            assert_eq!(code(&refused(&scratch, "shared/file", &[])), "permission_denied");
            assert_eq!(code(&refused(&scratch, "denied", &[])), "permission_denied");
            assert_eq!(put(&scratch, "shared/mine", &["x"], &[]).int("uid"), Some(4321));
        });
    }
}
