//! Agent tools that need no process: `read`, `edit`, `multi_edit`, `apply_patch`, `list`, `glob`, `grep`.
//!
//! A tool is one request `{op: "tool", name, user, …}`. Its answer is one MESSAGE with facts and, for those
//! that have a text or an image, DATA. Like file operations a tool runs on a thread with the rights of its
//! user. Every tool is bounded: in time by `timeoutMs`, in output and memory by the constants of its file.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::files::path::FilePath;
use crate::files::sys::{self, invalid};
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

mod apply_patch;
mod contents;
mod edit;
mod glob;
mod glob_pattern;
mod grep;
mod ignore;
mod list;
mod patch;
mod patch_lines;
mod read;
#[cfg(test)]
mod testing;
mod tree;

/// Whether `op` is the operation that runs tools.
pub fn handles(op: &str) -> bool {
    op == "tool"
}

/// Runs one tool on the calling thread, which already has the rights of the requesting user.
pub fn run(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    match request.text("name").unwrap_or_default() {
        "read" => read::read(request, stream),
        "edit" => edit::edit(request, stream),
        "multi_edit" => edit::multi_edit(request, stream),
        "apply_patch" => apply_patch::apply_patch(request, stream),
        "list" => list::list(request, stream),
        "glob" => glob::glob(request, stream),
        "grep" => grep::grep(request, stream),
        name => {
            Err(Failure::new("unsupported", format!("The guest has no tool \"{}\"", name.escape_default()))
                .into())
        }
    }
}

const DEFAULT_TIMEOUT_MS: i64 = 20_000;
const LONGEST_TIMEOUT_MS: i64 = 600_000;

/// Until when a tool may work, and whether anybody waits for it. Copied to every thread of the tool.
#[derive(Clone, Copy)]
pub struct Bounds {
    deadline: Instant,
    gone: RawFd,
}

/// Why work is given up before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The time is over; what was found so far is an answer.
    Late,
    /// The stream is gone.
    Gone,
}

impl Bounds {
    fn of(request: &Value, stream: &dyn TaskStream) -> Result<Bounds, Stopped> {
        let ms = count(request, "timeoutMs", DEFAULT_TIMEOUT_MS as usize)? as i64;
        let ms = ms.clamp(1, LONGEST_TIMEOUT_MS) as u64;
        Ok(Bounds { deadline: Instant::now() + Duration::from_millis(ms), gone: stream.gone() })
    }

    /// Costs a system call: asked between files, not between lines.
    fn over(&self) -> Option<Over> {
        if sys::poll(&mut [(self.gone, false)], 0).is_ok_and(|ready| ready == 1) {
            return Some(Over::Gone);
        }
        self.is_late().then_some(Over::Late)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

/// A whole number from 0 under `key`.
fn count(request: &Value, key: &str, default: usize) -> Result<usize, Stopped> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Int(number @ 0..)) => Ok(usize::try_from(*number).unwrap_or(usize::MAX)),
        Some(_) => Err(invalid(format!("\"{key}\" is a number from 0"))),
    }
}

/// A list of texts under `key`; a single text is a list of one.
fn texts(request: &Value, key: &str) -> Result<Vec<Vec<u8>>, Stopped> {
    let wrong = || invalid(format!("\"{key}\" is a list of texts"));
    match request.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_bytes().map(<[u8]>::to_vec).ok_or_else(wrong)).collect()
        }
        Some(one) => one.as_bytes().map(|bytes| vec![bytes.to_vec()]).ok_or_else(wrong),
    }
}

/// The path under `key`; one that is not absolute is below `cwd`.
fn path_of(request: &Value, key: &str) -> Result<FilePath, Stopped> {
    match request.bytes(key) {
        Some(path) if !path.is_empty() => below(request, path),
        _ if request.get(key).is_none() => below(request, b""),
        _ => Err(invalid(format!("\"{key}\" is a path"))),
    }
}

fn below(request: &Value, path: &[u8]) -> Result<FilePath, Stopped> {
    if path.first() == Some(&b'/') {
        return FilePath::parse(path);
    }
    let mut whole = request.bytes("cwd").ok_or_else(|| invalid("The request has no \"cwd\""))?.to_vec();
    whole.push(b'/');
    whole.extend_from_slice(path);
    FilePath::parse(&whole)
}
