//! `hostname PID NAME`: gives the sandbox of that process a hostname, from the host, as root.
//!
//! A sandbox that shares the host's kernel may not change its hostname itself, and one of the warm pool gets
//! its name after it was started. Nothing happens if the process is not in namespaces of its own: its number
//! may be another process's by now, and the host keeps its name.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

const MAX_LENGTH: usize = 64;

/// Fails with what could not be done.
pub fn run(pid: &OsStr, name: &OsString) -> Result<(), String> {
    let pid: u32 = pid.to_str().and_then(|text| text.parse().ok()).ok_or("the process is no number")?;
    let name = name.as_bytes();
    if name.is_empty() || name.len() > MAX_LENGTH || CString::new(name).is_err() {
        return Err(format!("a hostname has 1 to {MAX_LENGTH} bytes"));
    }
    for kind in ["user", "uts"] {
        let theirs =
            namespace(pid, kind).map_err(|error| format!("Cannot look at process {pid}: {error}"))?;
        if theirs == namespace("self", kind).map_err(|error| error.to_string())? {
            return Err(format!("Process {pid} is in the {kind} namespace of the host"));
        }
    }
    rename(pid, name).map_err(|error| format!("Cannot name the sandbox of process {pid}: {error}"))
}

fn namespace(process: impl std::fmt::Display, kind: &str) -> io::Result<OsString> {
    fs::read_link(format!("/proc/{process}/ns/{kind}")).map(OsString::from)
}

fn rename(pid: u32, name: &[u8]) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/uts"))?;
    // SAFETY: the descriptor is open, and the name lives for the call.
    let done = unsafe {
        libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUTS) == 0
            && libc::sethostname(name.as_ptr().cast(), name.len()) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_the_host_alone() {
        let own = std::process::id().to_string();
        let error = run(OsStr::new(&own), &OsString::from("other")).unwrap_err();
        assert!(error.contains("namespace of the host"), "{error}");
    }

    #[test]
    fn refuses_what_is_no_name() {
        for name in ["", &"a".repeat(65), "a\0b"] {
            assert!(run(OsStr::new("1"), &OsString::from(name)).unwrap_err().contains("bytes"));
        }
        assert!(run(OsStr::new("one"), &OsString::from("a")).is_err());
    }
}
