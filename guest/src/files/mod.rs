//! File operations: everything of the guest that reads and changes the sandbox's file system.
//!
//! Each runs on a thread of its own that has the rights of the requesting user, so the kernel decides
//! what is allowed. Memory is the same for a small file and a huge one: an operation has one buffer.

use crate::failure::Failure;
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

mod chain;
mod copy;
mod directories;
mod disk;
mod faithful;
mod info;
mod list;
mod names;
mod path;
mod read;
mod relocate;
mod remove;
mod rights;
mod sparse;
mod sys;
mod tar_header;
mod tar_read;
mod tar_write;
#[cfg(test)]
mod test_stream;
mod unpack;
mod walk;
mod watch;
mod watch_tree;
mod write;
mod xattrs;

pub use faithful::{Ids, LeftOut};
pub use tar_write::pack;
pub use unpack::unpack;

/// Whether `op` is a file operation.
pub fn handles(op: &str) -> bool {
    operation(op).is_some()
}

/// Runs one file operation on the calling thread, which already has the rights of the requesting user.
pub fn run(op: &str, request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    match operation(op) {
        Some(operation) => operation(request, stream),
        None => Err(Failure::new("unsupported", format!("Unknown file operation \"{op}\"")).into()),
    }
}

type Operation = fn(&Value, &mut dyn TaskStream) -> Result<(), Stopped>;

fn operation(op: &str) -> Option<Operation> {
    Some(match op {
        "stat" => info::stat,
        "list" => list::list,
        "read" => read::read,
        "write" => write::write,
        "mkdir" => directories::mkdir,
        "symlink" => directories::symlink,
        "move" => relocate::relocate,
        "remove" => remove::remove,
        "chmod" => rights::chmod,
        "chown" => rights::chown,
        "xattrs" => xattrs::xattrs,
        "watch" => watch::watch,
        "tar" => tar_write::tar,
        "untar" => unpack::untar,
        "disk" => disk::disk,
        _ => return None,
    })
}

/// The answer of operations that have nothing to say but that they are done.
fn done(stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    stream.send(&Value::Map(Vec::new()))
}
