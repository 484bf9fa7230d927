//! `bucket-mount --at DIR --socket PATH --id ID --access (ro|rw) [--patience SECONDS]`: mounts a bucket at a
//! directory, from the host, as root.
//!
//! The kernel asks by FUSE messages what the files are. This program carries them to the server, which has
//! the keys and speaks with the bucket, and carries the answers back. It holds the mount while no server is
//! there: calls wait for the next one, which gets them again, and fail with EIO after a while. It knows
//! nothing of files itself.
//!
//! It returns when the mount is made and the server has been reached, and goes on in the background until the
//! server says that the mount ends. Messages to the server begin with their length and with flags, both 32
//! bits, behind one that has the id. Answers have their length in the header that FUSE gives them.

mod fuse;
mod pump;

use pump::Pump;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

struct Arguments {
    at: CString,
    socket: PathBuf,
    id: String,
    read_only: bool,
    patience: Duration,
}

impl Arguments {
    fn parse(arguments: &[OsString]) -> Option<Arguments> {
        let (mut at, mut socket, mut id, mut read_only, mut patience) = (None, None, None, None, PATIENCE);
        for pair in arguments.chunks(2) {
            let [option, value] = pair else { return None };
            match option.to_str()? {
                "--at" => at = CString::new(value.as_bytes()).ok(),
                "--socket" => socket = Some(PathBuf::from(value)),
                "--id" => id = value.to_str().map(str::to_owned),
                "--access" => read_only = Some(access(value)?),
                "--patience" => patience = Duration::from_secs(value.to_str()?.parse().ok()?),
                _ => return None,
            }
        }
        Some(Arguments { at: at?, socket: socket?, id: id?, read_only: read_only?, patience })
    }
}

fn access(value: &OsStr) -> Option<bool> {
    match value.as_bytes() {
        b"ro" => Some(true),
        b"rw" => Some(false),
        _ => None,
    }
}

/// Returns `None` if the arguments make no sense.
pub fn run(arguments: &[OsString]) -> Option<Result<(), String>> {
    let arguments = Arguments::parse(arguments)?;
    Some(mount_and_serve(arguments))
}

fn mount_and_serve(Arguments { at, socket, id, read_only, patience }: Arguments) -> Result<(), String> {
    let failed_to = |doing: &str| {
        let doing = doing.to_owned();
        move |error: io::Error| format!("Cannot {doing}: {error}")
    };
    let device = fuse::open_device().map_err(failed_to("open /dev/fuse"))?;
    let mut pump = Pump::new(device, socket, id, at.clone(), patience);
    // Before it is mounted: what is mounted and not answered would be in everybody's way.
    pump.dial().map_err(failed_to("reach the server"))?;
    fuse::mount(pump.device(), &at, read_only).map_err(failed_to("mount a filesystem of FUSE"))?;
    match go_into_background() {
        // The mount is the background's now.
        Ok(Side::Foreground) => Ok(()),
        Ok(Side::Background) => {
            pump.run();
            Ok(())
        }
        Err(error) => {
            fuse::unmount(&at);
            Err(failed_to("go on in the background")(error))
        }
    }
}

enum Side {
    Foreground,
    Background,
}

fn go_into_background() -> io::Result<Side> {
    // SAFETY: there is one thread.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        _ => return Ok(Side::Foreground),
    }
    // SAFETY: constants that end with NUL; the descriptors are the standard streams.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for stream in 0..3 {
            libc::dup2(nothing, stream);
        }
        if nothing > 2 {
            libc::close(nothing);
        }
    }
    Ok(Side::Background)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_whole_or_refused() {
        let parse = |text: &str| Arguments::parse(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        let parsed = parse("--at /a --socket /s --id i/0 --access ro --patience 5").unwrap();
        assert!(parsed.read_only);
        assert_eq!((parsed.id.as_str(), parsed.patience), ("i/0", Duration::from_secs(5)));
        for text in
            ["--at /a --socket /s --id i", "--at /a --socket /s --id i --access x", "--at", "--else x"]
        {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
