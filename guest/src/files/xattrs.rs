//! `xattrs`: extended attributes of the `user.` namespace.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};

use crate::failure::Failure;
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::{FilePath, c_string};
use super::reach::Reach;
use super::sys::{self, Doing, invalid, shown};
use super::tar_header::Attribute;

const PREFIX: &str = "user.";
/// The answer is one message, which has to stay below the size of a frame.
const MAX_TOTAL: usize = 512 * 1024;
/// The kernel's own limit for a list of names and for a value.
pub const LARGEST: usize = 64 * 1024;

/// Sets what is to be set, then answers with all there are.
pub fn xattrs(request: &Value, reach: Option<&Reach>, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    // Held open until the end: by its number nothing else can take its place.
    let held = reach.map(|reach| reach.open(&path, "open")).transpose()?;
    let file = held
        .as_ref()
        .map_or_else(|| path.c(), |held| c_string(format!("/proc/self/fd/{}", held.as_raw_fd()).as_bytes()));
    match request.get("set") {
        None | Some(Value::Null) => {}
        Some(Value::Map(attrs)) => {
            for (name, value) in attrs {
                if name.is_empty() || name.contains('\0') {
                    return Err(invalid("The name of an attribute is text without NUL"));
                }
                set(&path, &file, &c_string(format!("{PREFIX}{name}").as_bytes()), value)?;
            }
        }
        Some(_) => return Err(invalid("The attributes to set are a map")),
    }
    let attrs = all(&path, &file)?;
    stream.send(&Value::map([("attrs", Value::Map(attrs))]))
}

/// Copies all attributes of the namespace, as far as the other file system has them.
pub fn copy(from: RawFd, to: RawFd, buffer: &mut [u8]) {
    for (name, value) in read(from, buffer).0 {
        // A file system without attributes refuses, and the copy is as good as it can be there.
        let _ = write(to, &name, &value);
    }
}

/// All attributes of the namespace by their whole names, and how many there was no room for.
pub fn read(from: RawFd, buffer: &mut [u8]) -> (Vec<Attribute>, u64) {
    // SAFETY: the pointer and the length describe `buffer`.
    let listed =
        sys::check(|| unsafe { libc::flistxattr(from, buffer.as_mut_ptr().cast(), buffer.len()) as i32 });
    let names = buffer[..listed.unwrap_or(0) as usize].to_vec();
    let (mut attributes, mut total, mut too_many) = (Vec::new(), 0, 0);
    for name in names.split(|byte| *byte == 0).filter(|name| name.starts_with(PREFIX.as_bytes())) {
        let key = c_string(name);
        // SAFETY: `key` ends with NUL; the pointer and the length describe `buffer`.
        let read = sys::check(|| unsafe {
            libc::fgetxattr(from, key.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) as i32
        });
        match read {
            Ok(length) if total + name.len() + length as usize <= MAX_TOTAL => {
                total += name.len() + length as usize;
                attributes.push((name.to_vec(), buffer[..length as usize].to_vec()));
            }
            _ => too_many += 1,
        }
    }
    (attributes, too_many)
}

/// Sets an attribute by its whole name. One of another namespace, or of no name, is passed over.
pub fn write(to: RawFd, name: &[u8], value: &[u8]) -> std::io::Result<()> {
    if !name.starts_with(PREFIX.as_bytes()) || name.len() == PREFIX.len() || name.contains(&0) {
        return Ok(());
    }
    let key = c_string(name);
    // SAFETY: `key` ends with NUL; the pointer and the length describe `value`.
    sys::check(|| unsafe { libc::fsetxattr(to, key.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
        .map(drop)
}

fn set(path: &FilePath, file: &CStr, name: &CStr, value: &Value) -> Result<(), Stopped> {
    if *value == Value::Null {
        // SAFETY: both strings end with NUL.
        return match sys::check(|| unsafe { libc::removexattr(file.as_ptr(), name.as_ptr()) }) {
            Err(error) if !sys::is(&error, libc::ENODATA) => {
                Err(error).doing("remove an attribute of", path.bytes())
            }
            _ => Ok(()),
        };
    }
    let bytes = value.as_bytes().ok_or_else(|| invalid("The value of an attribute is bytes or null"))?;
    // SAFETY: both strings end with NUL; the pointer and the length describe `bytes`.
    sys::check(|| unsafe {
        libc::setxattr(file.as_ptr(), name.as_ptr(), bytes.as_ptr().cast(), bytes.len(), 0)
    })
    .doing("set an attribute of", path.bytes())
    .map(drop)
}

fn all(path: &FilePath, file: &CStr) -> Result<Vec<(String, Value)>, Stopped> {
    let mut buffer = vec![0u8; LARGEST];
    // SAFETY: `file` ends with NUL; the pointer and the length describe `buffer`.
    let listed = sys::check(|| unsafe {
        libc::listxattr(file.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) as i32
    });
    let length = match listed {
        Err(error) if sys::is(&error, libc::ENOTSUP) => 0,
        listed => listed.doing("list the attributes of", path.bytes())?,
    };
    let names = buffer[..length as usize].to_vec();
    let mut attrs = Vec::new();
    let mut total = 0;
    for name in names.split(|byte| *byte == 0) {
        // A name that is not text cannot be a key of a map.
        let Some(short) = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let key = c_string(name);
        // SAFETY: both strings end with NUL; the pointer and the length describe `buffer`.
        let read = sys::check(|| unsafe {
            libc::getxattr(file.as_ptr(), key.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) as i32
        });
        let length = match read {
            Err(error) if sys::is(&error, libc::ENODATA) => continue,
            read => read.doing("read an attribute of", path.bytes())? as usize,
        };
        total += name.len() + length;
        if total > MAX_TOTAL {
            let message =
                format!("The attributes of \"{}\" are larger than {MAX_TOTAL} bytes", shown(path.bytes()));
            return Err(Failure::new("resource_exhausted", message).into());
        }
        attrs.push((short.to_owned(), Value::Bytes(buffer[..length].to_vec())));
    }
    attrs.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(attrs)
}

#[cfg(test)]
mod tests {
    use super::super::test_stream::{Scratch, code, fails, run};
    use super::*;

    #[test]
    fn attributes_are_set_read_and_removed() {
        let scratch = Scratch::new();
        std::fs::write(scratch.at("file"), "").expect("written");
        let none = run("xattrs", Value::map([("path", scratch.path("file"))]));
        assert_eq!(none.message("attrs"), Value::Map(vec![]));
        let set = Value::map([("b", Value::Bytes(vec![0, 255])), ("a", "text".into())]);
        let mut stream = super::super::test_stream::TestStream::new();
        let request = Value::map([("path", scratch.path("file")), ("set", set)]);
        match super::super::run("xattrs", &request, &mut stream) {
            Err(Stopped::Failed(failure)) if failure.code == "unsupported" => {
                println!("skipped: the file system of the temporary directory has no user attributes");
                return;
            }
            done => done.expect("set"),
        }
        let both = Value::map([("a", Value::Bytes(b"text".to_vec())), ("b", Value::Bytes(vec![0, 255]))]);
        assert_eq!(stream.message("attrs"), both);
        let set = Value::map([("b", Value::Null), ("never", Value::Null)]);
        let left = run("xattrs", Value::map([("path", scratch.path("file")), ("set", set)]));
        assert_eq!(left.message("attrs"), Value::map([("a", Value::Bytes(b"text".to_vec()))]));
    }

    #[test]
    fn senseless_requests_are_refused() {
        let scratch = Scratch::new();
        let xattrs = |set: Value| fails("xattrs", Value::map([("path", scratch.path("")), ("set", set)]));
        assert_eq!(code(&xattrs(Value::Int(1))), "invalid_argument");
        assert_eq!(code(&xattrs(Value::map([("a", Value::Int(1))]))), "invalid_argument");
        assert_eq!(code(&xattrs(Value::map([("", "x".into())]))), "invalid_argument");
        assert_eq!(code(&fails("xattrs", Value::map([("path", scratch.path("none"))]))), "not_found");
    }
}
