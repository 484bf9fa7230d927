//! `sandbox-call SOCKET REQUEST (read|new):FILE…`: calls the control socket of a gVisor sandbox with open
//! files, from the host, as root. The server cannot pass descriptors, and spawning the runtime for it takes
//! longer than the call.
//!
//! The answer goes to standard output. It comes from a process that a sandbox may have taken over, so that
//! only so much of it is read.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;

const MAX_FILES: usize = 8;
const MAX_ANSWER: u64 = 65_536;

/// Fails with what could not be done. That the sandbox refuses is an answer.
pub fn run(socket: &OsStr, request: &OsStr, files: &[OsString]) -> Result<(), String> {
    if files.len() > MAX_FILES {
        return Err(format!("at most {MAX_FILES} files can be passed"));
    }
    let opened = files.iter().map(|file| open(file)).collect::<Result<Vec<_>, _>>()?;
    let mut stream =
        UnixStream::connect(socket).map_err(|error| format!("Cannot reach the sandbox: {error}"))?;
    send(&mut stream, request.as_bytes(), &opened).map_err(|error| format!("Cannot call: {error}"))?;
    drop(opened);
    let answer = receive(&mut stream).map_err(|error| format!("No answer: {error}"))?;
    io::stdout().write_all(&answer).map_err(|error| format!("Cannot tell the answer: {error}"))
}

fn open(file: &OsStr) -> Result<File, String> {
    let bytes = file.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len());
    let path = OsStr::from_bytes(bytes.get(colon + 1..).unwrap_or_default());
    let options = match &bytes[..colon] {
        b"read" => OpenOptions::new().read(true).clone(),
        b"new" => OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).clone(),
        _ => return Err(format!("{file:?} is neither read:FILE nor new:FILE")),
    };
    options.open(path).map_err(|error| format!("Cannot open {path:?}: {error}"))
}

/// The descriptors go with the first byte.
fn send(stream: &mut UnixStream, request: &[u8], files: &[File]) -> io::Result<()> {
    let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let length = std::mem::size_of_val(&fds[..]) as u32;
    let mut control = [0u64; 16];
    let mut part = libc::iovec { iov_base: request.as_ptr().cast_mut().cast(), iov_len: request.len() };
    // SAFETY: all zeros is a valid header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the buffer is aligned, and has room for MAX_FILES descriptors.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(length) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(length) as _;
            std::ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(message),
                length as usize,
            );
        }
    }
    // SAFETY: everything that the header points to lives for the call.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    stream.write_all(&request[sent..])
}

/// One JSON object: the sandbox keeps the connection open after it.
fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sandbox hung up"));
        }
        answer.extend_from_slice(&buffer[..count]);
        if is_whole(&answer) {
            return Ok(answer);
        }
        if answer.len() as u64 > MAX_ANSWER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer has no end"));
        }
    }
}

/// Whether the braces outside of strings are all closed.
fn is_whole(text: &[u8]) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0u32, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => match depth {
                0 | 1 => return true,
                _ => depth -= 1,
            },
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_last_brace() {
        for whole in ["{}", r#"{"success":true,"err":"","result":{}}"#, r#"{"err":"a } \" { b"}"#, "}"] {
            assert!(is_whole(whole.as_bytes()), "{whole}");
            assert!(whole.len() < 2 || !is_whole(&whole.as_bytes()[..whole.len() - 1]), "{whole}");
        }
    }

    #[test]
    fn an_answer_without_an_end_is_refused() {
        assert!(receive(&mut io::repeat(b'{')).is_err());
        assert!(receive(&mut io::empty()).is_err());
    }

    #[test]
    fn files_go_with_the_request() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        send(&mut ours, b"{}", &[file]).unwrap();
        let (mut data, mut control) = ([0u8; 16], [0u64; 16]);
        let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        // SAFETY: as in `send`; the descriptor that arrives is left open until the test ends.
        let (count, kind) = unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = 128;
            let count = libc::recvmsg(theirs.as_raw_fd(), &mut header, 0);
            (count, (*libc::CMSG_FIRSTHDR(&header)).cmsg_type)
        };
        assert_eq!((count, kind, &data[..2]), (2, libc::SCM_RIGHTS, &b"{}"[..]));
    }

    #[test]
    fn a_file_is_never_replaced() {
        let path = std::env::temp_dir().join(format!("cay-call-{}", std::process::id()));
        let argument = OsString::from(format!("new:{}", path.display()));
        assert!(open(&argument).is_ok());
        assert!(open(&argument).is_err());
        std::fs::remove_file(path).unwrap();
        assert!(open(OsStr::new("/etc/passwd")).is_err());
    }
}
