//! System calls relative to a directory, as `io::Result`, and the texts of their errors.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::failure::Failure;
use crate::task::{Stopped, TaskStream};

/// Opens a directory that was found by its name and must still be one, not a symlink to one.
pub const DIRECTORY: i32 = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;

/// One buffer of this size per operation.
pub const BUFFER: usize = 128 * 1024;

/// Adds to a system error what was being done to what.
pub trait Doing<T> {
    /// `verb` as in "read", `path` is quoted in the message.
    fn doing(self, verb: &str, path: &[u8]) -> Result<T, Stopped>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, verb: &str, path: &[u8]) -> Result<T, Stopped> {
        self.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Stopped::Failed(Failure::from_errno(errno, &format!("{verb} \"{}\"", shown(path))))
        })
    }
}

/// A path as it is put into messages: readable and not endless.
pub fn shown(path: &[u8]) -> String {
    const LONGEST: usize = 1024;
    let mut text = String::from_utf8_lossy(&path[..path.len().min(LONGEST)]).into_owned();
    if path.len() > LONGEST {
        text.push('…');
    }
    text
}

/// An `invalid_argument` without an errno.
pub fn invalid(message: impl Into<String>) -> Stopped {
    Failure::new("invalid_argument", message).into()
}

/// An error by its number.
pub fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Whether `error` is the errno `number`.
pub fn is(error: &io::Error, number: i32) -> bool {
    error.raw_os_error() == Some(number)
}

/// Fails with `Gone` once the stream is: for long work that neither sends nor receives.
pub fn alive(stream: &dyn TaskStream) -> Result<(), Stopped> {
    if poll(&mut [(stream.gone(), false)], 0).is_ok_and(|ready| ready == 1) {
        Err(Stopped::Gone)
    } else {
        Ok(())
    }
}

/// Waits until a descriptor is readable or has ended and marks those that are. Returns how many.
pub fn poll(descriptors: &mut [(RawFd, bool)], timeout_ms: i32) -> io::Result<usize> {
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|(fd, _)| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: the pointer and the count describe `polled`.
    let ready =
        check(|| unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) })?;
    for (descriptor, polled) in descriptors.iter_mut().zip(&polled) {
        descriptor.1 = polled.revents != 0;
    }
    Ok(ready as usize)
}

/// Turns -1 into the errno; repeats what a signal interrupted.
pub fn check(mut call: impl FnMut() -> i32) -> io::Result<i32> {
    loop {
        let result = call();
        if result != -1 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if !is(&error, libc::EINTR) {
            return Err(error);
        }
    }
}

/// `openat`, always close-on-exec and never a controlling terminal.
pub fn open_at(directory: RawFd, name: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let unlinked = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    if flags & unlinked == unlinked && flags & libc::O_PATH == 0 {
        return open_directory_at(directory, name, flags);
    }
    open_now(directory, name, flags, mode)
}

/// gVisor follows a symlink that is opened with `O_DIRECTORY`, in spite of `O_NOFOLLOW`; not so with
/// `O_PATH`.
fn open_directory_at(directory: RawFd, name: &CStr, flags: i32) -> io::Result<OwnedFd> {
    let held = open_now(directory, name, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)?;
    let flags = flags & !libc::O_NOFOLLOW;
    match open_now(held.as_raw_fd(), c".", flags, 0) {
        // A name in it needs a right that reading it does not need.
        Err(error) if is(&error, libc::EACCES) => {
            let itself = CString::new(format!("/proc/self/fd/{}", held.as_raw_fd()))?;
            open_now(libc::AT_FDCWD, &itself, flags, 0).map_err(|_| error)
        }
        opened => opened,
    }
}

fn open_now(directory: RawFd, name: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: `name` ends with NUL.
    let fd = check(|| unsafe { libc::openat(directory, name.as_ptr(), flags, mode as libc::c_uint) })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens an absolute path.
pub fn open(path: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    open_at(libc::AT_FDCWD, path, flags, mode)
}

/// `fstatat`.
pub fn stat_at(directory: RawFd, name: &CStr, follow: bool) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: `name` ends with NUL and `stat` has room for the answer.
    check(|| unsafe { libc::fstatat(directory, name.as_ptr(), stat.as_mut_ptr(), flags) })?;
    // SAFETY: the call succeeded and filled it.
    Ok(unsafe { stat.assume_init() })
}

/// `fstat`.
pub fn stat_fd(fd: &impl AsRawFd) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: `stat` has room for the answer.
    check(|| unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded and filled it.
    Ok(unsafe { stat.assume_init() })
}

/// The type bits of a mode.
pub fn kind(stat: &libc::stat) -> u32 {
    stat.st_mode & libc::S_IFMT
}

/// The permission bits of a mode.
pub fn permissions(stat: &libc::stat) -> u32 {
    stat.st_mode & 0o7777
}

/// `readlinkat`; a target is shorter than 4096 bytes on Linux.
pub fn read_link_at(directory: RawFd, name: &CStr) -> io::Result<Vec<u8>> {
    let mut target = vec![0u8; 4096];
    // SAFETY: the pointer and the length describe `target`.
    let length = check(|| unsafe {
        libc::readlinkat(directory, name.as_ptr(), target.as_mut_ptr().cast(), target.len()) as i32
    })?;
    target.truncate(length as usize);
    target.shrink_to_fit();
    Ok(target)
}

/// `unlinkat` of something that is not a directory.
pub fn unlink_at(directory: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` ends with NUL.
    check(|| unsafe { libc::unlinkat(directory, name.as_ptr(), 0) }).map(drop)
}

/// `unlinkat` of an empty directory.
pub fn remove_directory_at(directory: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` ends with NUL.
    check(|| unsafe { libc::unlinkat(directory, name.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
}

/// `mkdirat`.
pub fn make_directory_at(directory: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `name` ends with NUL.
    check(|| unsafe { libc::mkdirat(directory, name.as_ptr(), mode as libc::mode_t) }).map(drop)
}

/// `symlinkat`.
pub fn symlink_at(target: &CStr, directory: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings end with NUL.
    check(|| unsafe { libc::symlinkat(target.as_ptr(), directory, name.as_ptr()) }).map(drop)
}

/// `mkfifoat`.
pub fn make_fifo_at(directory: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `name` ends with NUL.
    check(|| unsafe { libc::mkfifoat(directory, name.as_ptr(), mode as libc::mode_t) }).map(drop)
}

/// `linkat`; a symlink is linked itself, not what it points to.
pub fn link_at(from_directory: RawFd, from: &CStr, directory: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings end with NUL.
    check(|| unsafe { libc::linkat(from_directory, from.as_ptr(), directory, name.as_ptr(), 0) }).map(drop)
}

/// Renames; without `replace` a taken name is `EEXIST`.
pub fn rename_at(
    from_directory: RawFd,
    from: &CStr,
    directory: RawFd,
    name: &CStr,
    replace: bool,
) -> io::Result<()> {
    if replace {
        // SAFETY: both strings end with NUL.
        return check(|| unsafe { libc::renameat(from_directory, from.as_ptr(), directory, name.as_ptr()) })
            .map(drop);
    }
    match rename_no_replace(from_directory, from, directory, name) {
        Err(error) if has_no_flag(&error) => rename_onto_claim(from_directory, from, directory, name),
        renamed => renamed,
    }
}

/// Gives a file that is complete the name that it is for, in the same directory; a taken one is `EEXIST`.
pub fn publish_at(directory: RawFd, from: &CStr, name: &CStr) -> io::Result<()> {
    match rename_no_replace(directory, from, directory, name) {
        // A second name is refused where one is taken, so that one of many wins, and nobody sees the file
        // before it is whole.
        Err(error) if has_no_flag(&error) => {
            link_at(directory, from, directory, name).and_then(|()| unlink_at(directory, from))
        }
        renamed => renamed,
    }
}

fn rename_no_replace(from_directory: RawFd, from: &CStr, directory: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings end with NUL. Not every libc has a wrapper for this call.
    check(|| unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            from_directory,
            from.as_ptr(),
            directory,
            name.as_ptr(),
            libc::RENAME_NOREPLACE,
        ) as i32
    })
    .map(drop)
}

/// Not every file system knows how not to replace, such as a volume of a pod in gVisor.
fn has_no_flag(error: &io::Error) -> bool {
    is(error, libc::EINVAL) || is(error, libc::ENOSYS)
}

/// An empty file or directory claims the name first, which only one of several callers can do. The rename
/// then replaces it, so watchers see a rename.
fn rename_onto_claim(from_directory: RawFd, from: &CStr, directory: RawFd, name: &CStr) -> io::Result<()> {
    let is_directory = kind(&stat_at(from_directory, from, false)?) == libc::S_IFDIR;
    if is_directory {
        make_directory_at(directory, name, 0o700)?;
    } else {
        open_at(directory, name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW, 0o600)?;
    }
    rename_at(from_directory, from, directory, name, true).inspect_err(|_| {
        // Nothing can be done about a claim that stays, and the caller hears of the first error.
        let _ = if is_directory { remove_directory_at(directory, name) } else { unlink_at(directory, name) };
    })
}

/// `fchmod`.
pub fn change_mode(fd: &impl AsRawFd, mode: u32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(|| unsafe { libc::fchmod(fd.as_raw_fd(), mode as libc::mode_t) }).map(drop)
}

/// `fchmodat`, which follows a symlink: for names that are known to be none.
pub fn change_mode_at(directory: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `name` ends with NUL.
    check(|| unsafe { libc::fchmodat(directory, name.as_ptr(), mode as libc::mode_t, 0) }).map(drop)
}

/// `fchownat` of the name itself, never of what a symlink points to. `u32::MAX` leaves an id as it is.
pub fn change_owner_at(directory: RawFd, name: &CStr, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: `name` ends with NUL.
    check(|| unsafe { libc::fchownat(directory, name.as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW) })
        .map(drop)
}

/// `fchown`.
pub fn change_owner(fd: &impl AsRawFd, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(|| unsafe { libc::fchown(fd.as_raw_fd(), uid, gid) }).map(drop)
}

/// `fchownat` of what a descriptor holds, which may be a symlink that was opened with `O_PATH`.
pub fn change_owner_held(fd: &impl AsRawFd, uid: u32, gid: u32) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name is a constant that ends with NUL.
    check(|| unsafe { libc::fchownat(fd.as_raw_fd(), c"".as_ptr(), uid, gid, flags) }).map(drop)
}

/// `utimensat` of the same. Linux before 5.8 and gVisor know it by name alone.
pub fn set_modified_held(fd: &impl AsRawFd, seconds: i64, nanoseconds: i64) -> io::Result<()> {
    let times = times(seconds, nanoseconds);
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name is a constant that ends with NUL, `times` has two elements.
    check(|| unsafe { libc::utimensat(fd.as_raw_fd(), c"".as_ptr(), times.as_ptr(), flags) }).map(drop)
}

/// Sets the time of the last modification, of a symlink itself.
pub fn set_modified_at(directory: RawFd, name: &CStr, seconds: i64, nanoseconds: i64) -> io::Result<()> {
    let times = times(seconds, nanoseconds);
    // SAFETY: `name` ends with NUL, `times` has two elements.
    check(|| unsafe { libc::utimensat(directory, name.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })
        .map(drop)
}

/// Sets the time of the last modification.
pub fn set_modified(fd: &impl AsRawFd, seconds: i64, nanoseconds: i64) -> io::Result<()> {
    let times = times(seconds, nanoseconds);
    // SAFETY: `times` has two elements.
    check(|| unsafe { libc::futimens(fd.as_raw_fd(), times.as_ptr()) }).map(drop)
}

fn times(seconds: i64, nanoseconds: i64) -> [libc::timespec; 2] {
    let mut times: [libc::timespec; 2] = unsafe { std::mem::zeroed() }; // SAFETY: two integers each; zero is valid.
    times[0].tv_nsec = libc::UTIME_OMIT;
    times[1].tv_sec = seconds;
    times[1].tv_nsec = nanoseconds.clamp(0, 999_999_999);
    times
}

/// `pread`.
pub fn read_at(fd: &impl AsRawFd, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
    loop {
        // SAFETY: the pointer and the length describe `buffer`.
        let read = unsafe { libc::pread(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), offset) };
        if read >= 0 {
            return Ok(read as usize);
        }
        let error = io::Error::last_os_error();
        if !is(&error, libc::EINTR) {
            return Err(error);
        }
    }
}

/// Whether this thread may do as root does.
pub fn is_root() -> bool {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() == 0 }
}

/// A name nobody else has, for what is made beside its final place.
pub fn temporary_name() -> io::Result<std::ffi::CString> {
    let mut random = [0u8; 12];
    // SAFETY: the pointer and the length describe `random`.
    check(|| unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) as i32 })?;
    let mut name = String::from(".cay-");
    random.iter().for_each(|byte| name.push_str(&format!("{byte:02x}")));
    std::ffi::CString::new(name).map_err(|_| errno(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::super::path::c_string;
    use super::super::test_stream::{Scratch, as_user};
    use super::*;

    fn name(path: impl AsRef<std::path::Path>) -> CString {
        c_string(path.as_ref().as_os_str().as_encoded_bytes())
    }

    #[test]
    fn a_directory_is_not_opened_by_a_link_to_it() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.at("there")).expect("made");
        std::os::unix::fs::symlink(scratch.at("there"), scratch.at("link")).expect("made");
        std::fs::write(scratch.at("file"), "").expect("made");
        let root = open(&name(scratch.root()), DIRECTORY, 0).expect("opened");
        assert!(open_at(root.as_raw_fd(), c"there", DIRECTORY, 0).is_ok());
        for other in [c"link", c"file", c"none"] {
            let error = open_at(root.as_raw_fd(), other, DIRECTORY, 0).expect_err("refused");
            assert!([libc::ENOTDIR, libc::ELOOP, libc::ENOENT].iter().any(|number| is(&error, *number)));
        }
    }

    #[test]
    fn a_directory_that_may_be_read_and_not_passed_through_is_opened() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new();
        for (at, mode) in [("readable", 0o744), ("closed", 0o700)] {
            std::fs::create_dir(scratch.at(at)).expect("made");
            std::fs::set_permissions(scratch.at(at), PermissionsExt::from_mode(mode)).expect("changed");
        }
        let root = open(&name(scratch.root()), DIRECTORY, 0).expect("opened");
        let root = root.as_raw_fd();
        as_user(4321, || {
            assert!(open_at(root, c"readable", DIRECTORY, 0).is_ok());
            let error = open_at(root, c"closed", DIRECTORY, 0).expect_err("refused");
            assert!(is(&error, libc::EACCES));
        });
    }
}
