//! `btrfs-snapshot SUBVOLUME COPY (ro|rw) (LIMIT|-)`: copies a subvolume, limits the copy, and prints its id,
//! from the host, as root.
//!
//! The programs of btrfs do the same in three processes that load a dozen libraries each, which takes longer
//! than the copy.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The kernel's names are shorter.
const NAME_BYTES: usize = 4040;
const READ_ONLY: u64 = 1 << 1;
const LIMIT_REFERENCED: u64 = 1;
/// The directory that every subvolume begins with.
const FIRST_FREE_OBJECT: u64 = 256;

#[repr(C)]
struct VolumeArguments {
    fd: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; NAME_BYTES],
}

#[repr(C)]
#[derive(Default)]
struct LimitArguments {
    group: u64,
    flags: u64,
    most_referenced: u64,
    most_exclusive: u64,
    reserved_referenced: u64,
    reserved_exclusive: u64,
}

#[repr(C)]
struct LookupArguments {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

/// `_IOW`, `_IOR` and `_IOWR` of btrfs.
const fn request(direction: u32, number: u32, size: usize) -> libc::Ioctl {
    ((direction << 30) | ((size as u32) << 16) | (0x94 << 8) | number) as libc::Ioctl
}

const SNAPSHOT: libc::Ioctl = request(1, 23, size_of::<VolumeArguments>());
const LIMIT: libc::Ioctl = request(2, 43, size_of::<LimitArguments>());
const LOOKUP: libc::Ioctl = request(3, 18, size_of::<LookupArguments>());

/// Fails with what could not be done. A copy that cannot be limited stays: the caller removes it.
pub fn snapshot(from: &OsStr, to: &OsStr, access: &OsStr, limit: &OsStr) -> Result<(), String> {
    let read_only = match access.as_bytes() {
        b"ro" => true,
        b"rw" => false,
        _ => return Err(format!("{access:?} is neither ro nor rw")),
    };
    let limit = match limit.as_bytes() {
        b"-" => None,
        bytes => Some(
            std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
                .ok_or_else(|| format!("{limit:?} is no number of bytes"))?,
        ),
    };
    copy(from, to, read_only).map_err(|error| format!("Cannot copy {from:?} to {to:?}: {error}"))?;
    let copy = File::open(to).map_err(|error| format!("Cannot open {to:?}: {error}"))?;
    if let Some(bytes) = limit {
        self::limit(copy.as_raw_fd(), bytes).map_err(|error| format!("Cannot limit {to:?}: {error}"))?;
    }
    let id = id(copy.as_raw_fd()).map_err(|error| format!("Cannot tell the id of {to:?}: {error}"))?;
    println!("{id}");
    Ok(())
}

fn copy(from: &OsStr, to: &OsStr, read_only: bool) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let (directory, name) = Path::new(to).parent().zip(Path::new(to).file_name()).ok_or_else(invalid)?;
    let name = CString::new(name.as_bytes()).map_err(|_| invalid())?.into_bytes_with_nul();
    let source = File::open(from)?;
    let directory = File::open(directory)?;
    let mut arguments = VolumeArguments {
        fd: i64::from(source.as_raw_fd()),
        transaction: 0,
        flags: if read_only { READ_ONLY } else { 0 },
        unused: [0; 4],
        name: [0; NAME_BYTES],
    };
    arguments.name.get_mut(..name.len()).ok_or_else(invalid)?.copy_from_slice(&name);
    // SAFETY: the arguments have the layout of this request, and live for the call.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), SNAPSHOT, &raw mut arguments) })
}

fn limit(subvolume: RawFd, bytes: u64) -> io::Result<()> {
    let mut arguments =
        LimitArguments { flags: LIMIT_REFERENCED, most_referenced: bytes, ..LimitArguments::default() };
    // SAFETY: as above.
    check(unsafe { libc::ioctl(subvolume, LIMIT, &raw mut arguments) })
}

fn id(subvolume: RawFd) -> io::Result<u64> {
    let mut arguments = LookupArguments { tree: 0, object: FIRST_FREE_OBJECT, name: [0; 4080] };
    // SAFETY: as above.
    check(unsafe { libc::ioctl(subvolume, LOOKUP, &raw mut arguments) })?;
    Ok(arguments.tree)
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_the_kernel() {
        assert_eq!(SNAPSHOT as u32, 0x5000_9417);
        assert_eq!(LIMIT as u32, 0x8030_942b);
        assert_eq!(LOOKUP as u32, 0xd000_9412);
    }

    #[test]
    fn what_is_malformed_or_no_btrfs_is_refused() {
        let call = |access: &str, limit: &str| {
            snapshot("/proc".as_ref(), "/proc/copy".as_ref(), access.as_ref(), limit.as_ref()).unwrap_err()
        };
        assert!(call("x", "-").contains("neither"));
        assert!(call("ro", "-1").contains("no number"));
        assert!(call("ro", "-").starts_with("Cannot copy"));
    }
}
