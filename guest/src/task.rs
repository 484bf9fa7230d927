//! A task is one request that may block: a file operation, run by a thread of its own.
//!
//! It sees its stream through this trait and nothing else of the guest, so that a slow disk or a
//! slow reader holds up that thread and no other stream.

use std::os::fd::RawFd;

use crate::failure::Failure;
use crate::value::Value;

/// Why a task ends early.
#[derive(Debug)]
pub enum Stopped {
    /// The server reset the stream or the connection is gone: clean up, there is no one to report to.
    Gone,
    /// The request failed: the stream is reset with this.
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

/// A task's side of its stream. Sending waits for credit, receiving grants it.
pub trait TaskStream {
    /// Sends a MESSAGE.
    fn send(&mut self, message: &Value) -> Result<(), Stopped>;
    /// Sends DATA; splits what is longer than one frame may be.
    fn send_data(&mut self, bytes: &[u8]) -> Result<(), Stopped>;
    /// The next DATA from the server, or `None` after its END.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, Stopped>;
    /// A descriptor that becomes readable when the stream is gone, for tasks that wait for something else.
    fn gone(&self) -> RawFd;
}
