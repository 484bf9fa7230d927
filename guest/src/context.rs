//! What every handler of the event loop uses.

use crate::memory::Memory;
use crate::poller::Poller;
use crate::timers::Timers;

/// Size of the buffer for one read.
pub const BUFFER_BYTES: usize = 262_144;

/// Passed to whatever handles an event.
pub struct Context {
    /// Descriptors that wake the loop.
    pub poller: Poller,
    /// Timers that wake the loop.
    pub timers: Timers,
    /// Memory use and the memory guard.
    pub memory: Memory,
    /// Scratch space for reads and writes; its content does not outlive a call.
    pub buffer: Vec<u8>,
}

impl Context {
    /// No timers yet.
    pub fn new(poller: Poller) -> Context {
        Context {
            poller,
            timers: Timers::default(),
            memory: Memory::default(),
            buffer: vec![0; BUFFER_BYTES],
        }
    }
}
