//! The parts of the guest. See `docs/reference/guest-protocol.md` for what it speaks.

pub mod failure;
pub mod task;
pub mod value;
