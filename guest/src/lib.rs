//! The parts of the guest. See `docs/reference/guest-protocol.md` for what it speaks.

pub mod bridge;
pub mod commands;
pub mod context;
pub mod event_loop;
pub mod failure;
pub mod files;
pub mod forward;
pub mod guest;
pub mod install;
pub mod memory;
pub mod on_tree;
pub mod pack;
pub mod poller;
pub mod ports;
pub mod process_table;
pub mod reach;
pub mod sys;
pub mod task;
pub mod tasks;
pub mod timers;
pub mod tools;
pub mod transport;
pub mod users;
pub mod value;
