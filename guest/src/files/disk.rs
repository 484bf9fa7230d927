//! `disk`: the room on the file system that holds a path.

use std::mem::MaybeUninit;

use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::path::FilePath;
use super::sys::{self, Doing};

/// `freeBytes` is what the user may still fill; root may have more.
// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
pub fn disk(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = FilePath::of(request, "path")?;
    let name = path.c();
    let mut room = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `name` ends with NUL and `room` has room for the answer.
    sys::check(|| unsafe { libc::statvfs(name.as_ptr(), room.as_mut_ptr()) })
        .doing("look at the disk of", path.bytes())?;
    // SAFETY: the call succeeded and filled it.
    let room = unsafe { room.assume_init() };
    let bytes = |blocks: u64| {
        Value::Int(i64::try_from(blocks.saturating_mul(room.f_frsize as u64)).unwrap_or(i64::MAX))
    };
    stream.send(&Value::map([
        ("totalBytes", bytes(room.f_blocks as u64)),
        ("freeBytes", bytes(room.f_bavail as u64)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::super::test_stream::{code, fails, run};
    use super::*;

    #[test]
    fn the_disk_has_a_size_and_less_of_it_is_free() {
        let stream = run("disk", Value::map([("path", "/".into())]));
        let (total, free) = (stream.message("totalBytes"), stream.message("freeBytes"));
        assert!(
            matches!((total, free), (Value::Int(total), Value::Int(free)) if total > 0 && free >= 0 && free <= total)
        );
        assert_eq!(code(&fails("disk", Value::map([("path", "/none/such".into())]))), "not_found");
    }
}
