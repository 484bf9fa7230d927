//! `read`: the content of a file, or a range of it.

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::info;
use super::path::FilePath;
use super::sys::{self, Doing, invalid, shown};

/// Regular files only: anything else may never end, or hang when it is opened.
pub fn read(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let mut offset = number(request, "offset")?.unwrap_or(0);
    let mut left = number(request, "length")?.unwrap_or(i64::MAX);
    // Looked at before it is opened, because opening a device may already do something.
    check_regular(&path, &path.stat(true).doing("read", path.bytes())?, "read")?;
    let file = sys::open(&path.c(), libc::O_RDONLY | libc::O_NONBLOCK, 0).doing("read", path.bytes())?;
    let stat = sys::stat_fd(&file).doing("read", path.bytes())?;
    check_regular(&path, &stat, "read")?;
    stream.send(&Value::map([("info", info::info(path.name(), path.bytes(), &stat))]))?;
    // Files of /proc say that they are empty and are not.
    if offset >= stat.st_size && stat.st_size > 0 {
        return Ok(());
    }
    let mut buffer = vec![0; sys::BUFFER];
    while left > 0 {
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let filled = match sys::read_at(&file, &mut buffer[..wanted], offset) {
            // An offset too large for the file system is past the end of every file.
            Err(error)
                if offset > stat.st_size
                    && (sys::is(&error, libc::EINVAL) || sys::is(&error, libc::EOVERFLOW)) =>
            {
                0
            }
            read => read.doing("read", path.bytes())?,
        };
        if filled == 0 {
            break;
        }
        stream.send_data(&buffer[..filled])?;
        offset = offset.saturating_add(filled as i64);
        left -= filled as i64;
    }
    Ok(())
}

/// Refuses what is not a regular file.
pub fn check_regular(path: &FilePath, stat: &libc::stat, verb: &str) -> Result<(), Stopped> {
    match sys::kind(stat) {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(sys::errno(libc::EISDIR)).doing(verb, path.bytes()),
        _ => Err(invalid(format!("Cannot {verb} \"{}\": it is not a regular file", shown(path.bytes())))),
    }
}

fn number(request: &Value, key: &str) -> Result<Option<i64>, Stopped> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Int(number @ 0..)) => Ok(Some(*number)),
        Some(_) => Err(invalid(format!("The {key} is a number from 0"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Seek, SeekFrom, Write};

    use super::super::test_stream::{Scratch, TestStream, as_user, code, errno, fails, run};
    use super::*;

    fn range(scratch: &Scratch, name: &str, offset: i64, length: i64) -> TestStream {
        run(
            "read",
            Value::map([("path", scratch.path(name)), ("offset", offset.into()), ("length", length.into())]),
        )
    }

    #[test]
    fn whole_files_and_ranges_are_read() {
        let scratch = Scratch::new();
        let content: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        fs::write(scratch.at("file"), &content).expect("written");
        let all = run("read", Value::map([("path", scratch.path("file"))]));
        assert!(all.data == content && all.largest_data <= 131_072);
        assert_eq!(all.message("info").int("size"), Some(1_200_000));
        assert!(range(&scratch, "file", 1000, 200_000).data == content[1000..201_000]);
        assert!(range(&scratch, "file", 1_199_990, 1000).data == content[1_199_990..]);
        for offset in [1_200_000, 1 << 40, i64::MAX] {
            assert!(range(&scratch, "file", offset, i64::MAX).data.is_empty());
        }
        assert!(range(&scratch, "file", 0, 0).data.is_empty());
    }

    #[test]
    fn an_empty_file_is_empty_at_every_offset_and_proc_is_read_to_its_end() {
        let scratch = Scratch::new();
        fs::write(scratch.at("empty"), "").expect("written");
        assert!(range(&scratch, "empty", i64::MAX, i64::MAX).data.is_empty());
        assert!(!run("read", Value::map([("path", "/proc/self/status".into())])).data.is_empty());
    }

    #[test]
    fn ranges_beyond_four_gigabytes_are_read() {
        let scratch = Scratch::new();
        let mut file = fs::File::create(scratch.at("large")).expect("made");
        file.seek(SeekFrom::Start(5_000_000_000)).expect("moved");
        file.write_all(b"the end").expect("written");
        let stream = range(&scratch, "large", 4_999_999_998, 5);
        assert_eq!(stream.data, b"\0\0the");
        assert_eq!(stream.message("info").int("size"), Some(5_000_000_007));
        assert_eq!(range(&scratch, "large", 5_000_000_003, i64::MAX).data, b" end");
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_and_a_fifo_does_not_hang() {
        let scratch = Scratch::new();
        sys::make_fifo_at(
            libc::AT_FDCWD,
            &FilePath::of(&Value::map([("p", scratch.path("fifo"))]), "p").expect("a path").c(),
            0o644,
        )
        .expect("made");
        let _socket = std::os::unix::net::UnixListener::bind(scratch.at("socket")).expect("bound");
        for name in ["fifo", "socket", ""] {
            assert_eq!(code(&fails("read", Value::map([("path", scratch.path(name))]))), "invalid_argument");
        }
        assert_eq!(errno(&fails("read", Value::map([("path", scratch.path(""))]))), "EISDIR");
        assert_eq!(code(&fails("read", Value::map([("path", "/dev/zero".into())]))), "invalid_argument");
        assert_eq!(code(&fails("read", Value::map([("path", scratch.path("none"))]))), "not_found");
        let negative = Value::map([("path", scratch.path("fifo")), ("offset", (-1).into())]);
        assert_eq!(code(&fails("read", negative)), "invalid_argument");
    }

    #[test]
    fn the_users_rights_decide() {
        let scratch = Scratch::new();
        fs::write(scratch.at("secret"), "x").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(scratch.at("secret"), mode).expect("changed");
        as_user(4321, || {
            assert_eq!(
                code(&fails("read", Value::map([("path", scratch.path("secret"))]))),
                "permission_denied"
            );
        });
    }
}
