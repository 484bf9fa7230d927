//! File operations: everything of the guest that reads and changes the sandbox's file system.
//!
//! Each runs on a thread of its own that has the rights of the requesting user, so the kernel decides
//! what is allowed. Memory is the same for a small file and a huge one: an operation has one buffer.

use crate::failure::Failure;
use crate::task::{Stopped, TaskStream};
use crate::users::Identity;
use crate::value::Value;
use reach::Reach;
use sys::Doing;

mod chain;
mod copy;
mod directories;
mod disk;
mod faithful;
mod info;
mod layer;
mod list;
mod names;
pub(crate) mod path;
mod reach;
pub(crate) mod read;
mod relocate;
mod remove;
mod rights;
mod sparse;
pub(crate) mod sys;
mod tar_header;
mod tar_read;
mod tar_write;
#[cfg(test)]
pub(crate) mod test_stream;
mod unpack;
pub(crate) mod walk;
mod watch;
mod watch_tree;
mod write;
mod xattrs;

pub use faithful::{Ids, LeftOut};
pub use tar_write::pack;
pub use unpack::{unpack, unpack_layer};

/// Whether `op` is a file operation.
pub fn handles(op: &str) -> bool {
    operation(op).is_some()
}

/// Runs one file operation on the calling thread, which already has the rights of the requesting user.
pub fn run(op: &str, request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    match operation(op) {
        Some(Operation::Plain(operation)) => operation(request, stream),
        Some(Operation::Reaching(operation)) => operation(request, None, stream),
        None => Err(Failure::new("unsupported", format!("Unknown file operation \"{op}\"")).into()),
    }
}

/// Runs one with root's reach for `user`, on a thread that is root's. Those that have no such reach get the
/// user's rights.
pub fn run_reaching(
    op: &str,
    request: &Value,
    user: Identity,
    stream: &mut dyn TaskStream,
) -> Result<(), Stopped> {
    let reach = Reach::new(user);
    if let Some(Operation::Reaching(operation)) = operation(op) {
        return operation(request, Some(&reach), stream);
    }
    reach.give_up().doing("act as the user of", b"")?;
    run(op, request, stream)
}

enum Operation {
    Plain(fn(&Value, &mut dyn TaskStream) -> Result<(), Stopped>),
    Reaching(fn(&Value, Option<&Reach>, &mut dyn TaskStream) -> Result<(), Stopped>),
}

fn operation(op: &str) -> Option<Operation> {
    use Operation::{Plain, Reaching};
    Some(match op {
        "stat" => Plain(info::stat),
        "list" => Plain(list::list),
        "read" => Plain(read::read),
        "write" => Reaching(write::write),
        "mkdir" => Reaching(directories::mkdir),
        "symlink" => Plain(directories::symlink),
        "move" => Reaching(relocate::relocate),
        "remove" => Reaching(remove::remove),
        "chmod" => Plain(rights::chmod),
        "chown" => Plain(rights::chown),
        "xattrs" => Reaching(xattrs::xattrs),
        "watch" => Plain(watch::watch),
        "tar" => Plain(tar_write::tar),
        "untar" => Plain(unpack::untar),
        "pack" => Plain(tar_write::pack_below),
        "unpack" => Plain(unpack::unpack_below),
        "disk" => Plain(disk::disk),
        _ => return None,
    })
}

/// The answer of operations that have nothing to say but that they are done.
fn done(stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    stream.send(&Value::Map(Vec::new()))
}
