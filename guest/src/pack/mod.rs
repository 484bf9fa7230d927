//! `pack` and `unpack`: a tree directory as a POSIX pax archive on standard output, and back from standard
//! input.
//!
//! The server runs them on the host, as root, on the trees of sandboxes. They see nothing but the tree: it is
//! their root directory before the first name in it is looked at. Owners in the archive are as the sandbox
//! sees them.
//!
//! With `--layer ENTRIES` the archive is a layer of an image, of at most that many entries, and unpacked over
//! what is there: `layer.rs` tells what is different.
//!
//! What was left out is printed on standard error as one line, `left out: files=1 attributes=0 owners=0
//! links=0`; a failure as `code: message`, with exit code 1.

use std::ffi::{CString, OsString};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::failure::Failure;
use crate::files::{self, Ids, LeftOut};
use crate::task::Stopped;

mod rights;
mod standard_stream;

use standard_stream::StandardStream;

/// Whether to write or to read an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the tree.
    Pack,
    /// Into the tree.
    Unpack,
}

struct Arguments {
    root: CString,
    ids: Ids,
    layer: Option<u64>,
    paths: Vec<Vec<u8>>,
}

/// Runs with `--root DIR --ids HOSTID:SIZE`, and `--path P` for each path to pack, or `--layer ENTRIES`.
/// Returns the exit code, or `None` if the arguments make no sense.
pub fn run(direction: Direction, arguments: &[OsString]) -> Option<u8> {
    let arguments = Arguments::parse(direction, arguments)?;
    let mut stderr = std::io::stderr();
    let result = enter(&arguments.root).and_then(|root| match direction {
        Direction::Pack => {
            let paths: Vec<&[u8]> = arguments.paths.iter().map(Vec::as_slice).collect();
            files::pack(&root, arguments.ids, &paths, &mut StandardStream::default())
        }
        Direction::Unpack => {
            rights::keep_those_for_files();
            let stream = &mut StandardStream::default();
            match arguments.layer {
                Some(most) => files::unpack_layer(root, arguments.ids, most, stream),
                None => files::unpack(root, arguments.ids, stream),
            }
        }
    });
    match result {
        Ok(LeftOut { files, attributes, owners, links }) => {
            let _ = writeln!(
                stderr,
                "left out: files={files} attributes={attributes} owners={owners} links={links}"
            );
            Some(0)
        }
        Err(Stopped::Gone) => Some(1),
        Err(Stopped::Failed(Failure { code, message, .. })) => {
            let _ = writeln!(stderr, "{code}: {message}");
            Some(1)
        }
    }
}

impl Arguments {
    fn parse(direction: Direction, arguments: &[OsString]) -> Option<Arguments> {
        let (mut root, mut ids, mut layer, mut paths) = (None, None, None, Vec::new());
        for pair in arguments.chunks(2) {
            let [option, value] = pair else { return None };
            match option.to_str()? {
                "--root" => root = CString::new(value.as_bytes()).ok(),
                "--ids" => ids = Ids::parse(value.to_str()?),
                "--layer" if direction == Direction::Unpack => layer = Some(value.to_str()?.parse().ok()?),
                "--path" if direction == Direction::Pack => paths.push(value.clone().into_vec()),
                _ => return None,
            }
        }
        Some(Arguments { root: root?, ids: ids?, layer, paths })
    }
}

/// Makes the tree the root directory of this process.
fn enter(path: &CString) -> Result<OwnedFd, Stopped> {
    let failed = |error: std::io::Error| {
        let doing = format!("enter \"{}\"", path.to_string_lossy());
        Stopped::Failed(Failure::from_errno(error.raw_os_error().unwrap_or(libc::EIO), &doing))
    };
    // SAFETY: both paths end with NUL. Modes are set as the archive has them.
    unsafe {
        libc::umask(0);
        if libc::chdir(path.as_ptr()) != 0 || libc::chroot(c".".as_ptr()) != 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
    }
    std::fs::File::open("/").map(OwnedFd::from).map_err(failed)
}
