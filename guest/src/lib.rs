//! The parts of the guest. See `docs/reference/guest-protocol.md` for what it speaks.

pub mod bridge;
pub mod callers;
pub mod carrier;
pub mod commands;
pub mod connection;
pub mod event_loop;
pub mod failure;
pub mod files;
pub mod forward;
pub mod frame;
pub mod guest;
pub mod install;
pub mod link;
pub mod memory;
pub mod pack;
pub mod poller;
pub mod ports;
pub mod process_table;
pub mod sealed;
pub mod sys;
pub mod task;
pub mod tasks;
pub mod timers;
pub mod users;
pub mod value;
pub mod write_queue;
