//! Standard input and output as the stream of a task.

use std::os::fd::RawFd;

use crate::failure::Failure;
use crate::sys;
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

const CHUNK: usize = 256 * 1024;

/// Data goes to standard output and comes from standard input; there are no messages.
#[derive(Default)]
pub struct StandardStream {}

impl TaskStream for StandardStream {
    fn send(&mut self, _message: &Value) -> Result<(), Stopped> {
        Ok(())
    }

    fn send_data(&mut self, mut bytes: &[u8]) -> Result<(), Stopped> {
        while !bytes.is_empty() {
            match sys::write(libc::STDOUT_FILENO, bytes) {
                Ok(Some(written)) => bytes = &bytes[written..],
                Ok(None) => wait(libc::STDOUT_FILENO, libc::POLLOUT),
                // The reader is gone.
                Err(libc::EPIPE) => return Err(Stopped::Gone),
                Err(errno) => return Err(Failure::from_errno(errno, "write the archive").into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, Stopped> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match sys::read(libc::STDIN_FILENO, &mut chunk) {
                Ok(Some(0)) => return Ok(None),
                Ok(Some(length)) => {
                    chunk.truncate(length);
                    return Ok(Some(chunk));
                }
                Ok(None) => wait(libc::STDIN_FILENO, libc::POLLIN),
                Err(errno) => return Err(Failure::from_errno(errno, "read the archive").into()),
            }
        }
    }

    fn gone(&self) -> RawFd {
        -1
    }
}

/// The parent made the pipe and may have set `O_NONBLOCK`.
fn wait(fd: RawFd, events: libc::c_short) {
    let mut polled = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one descriptor is passed. Whatever it says, the call that follows finds out.
    unsafe { libc::poll(&mut polled, 1, -1) };
}
