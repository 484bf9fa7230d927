//! `cay-guest dial PATH | serve PATH | bridge PATH [later] | install DIR … | listen PORT | reach MILLISECONDS
//! ADDRESS… | probe [relay HOST PORT] | pack … | unpack … | on-tree … | hostname PID NAME | sandbox-call
//! SOCKET REQUEST FILE… | launch
//! | btrfs-snapshot SUBVOLUME COPY (ro|rw) (LIMIT|-) | bucket-mount …`

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use cay_guest::event_loop::{self, End};
use cay_guest::transport::sockets::Endpoint;
use cay_guest::{btrfs, bucket_mount, hostname, install, launch, on_tree, pack, probe, reach, sandbox_call};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let result = match &arguments[..] {
        [mode, path] if mode == OsStr::new("dial") => event_loop::run(Endpoint::Dial(PathBuf::from(path))),
        [mode, path] if mode == OsStr::new("serve") => event_loop::run(Endpoint::Serve(PathBuf::from(path))),
        [mode, path] if mode == OsStr::new("bridge") => return bridge(path, false),
        [mode, path, when] if mode == OsStr::new("bridge") && when == OsStr::new("later") => {
            return bridge(path, true);
        }
        [mode] if mode == OsStr::new("version") => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        [mode, directory, rest @ ..] if mode == OsStr::new("install") => {
            install::run(directory.as_ref(), rest).map(|()| End::Asked)
        }
        [mode, pid, name] if mode == OsStr::new("hostname") => hostname::run(pid, name).map(|()| End::Asked),
        [mode, socket, request, files @ ..] if mode == OsStr::new("sandbox-call") => {
            sandbox_call::run(socket, request, files).map(|()| End::Asked)
        }
        [mode] if mode == OsStr::new("launch") => launch::run().map(|()| End::Asked),
        [mode, from, to, access, limit] if mode == OsStr::new("btrfs-snapshot") => {
            btrfs::snapshot(from, to, access, limit).map(|()| End::Asked)
        }
        [mode, rest @ ..] if mode == OsStr::new("bucket-mount") => match bucket_mount::run(rest) {
            Some(result) => result.map(|()| End::Asked),
            None => return usage(),
        },
        [mode, port] if mode == OsStr::new("listen") => reach::listen(port).map(|()| End::Asked),
        [mode, within, addresses @ ..] if mode == OsStr::new("reach") => {
            return reach::reach(within, addresses);
        }
        [mode, rest @ ..] if mode == OsStr::new("pack") => return pack(pack::Direction::Pack, rest),
        [mode, rest @ ..] if mode == OsStr::new("unpack") => return pack(pack::Direction::Unpack, rest),
        [mode, rest @ ..] if mode == OsStr::new("probe") => return probe::run(rest).unwrap_or_else(usage),
        [mode, rest @ ..] if mode == OsStr::new("on-tree") => {
            return on_tree::run(rest).map_or_else(usage, ExitCode::from);
        }
        _ => return usage(),
    };
    match result {
        // What ends with the first process, such as a container, goes on, and with it its files.
        Ok(End::Again) => begin_anew(),
        Ok(End::Asked) => ExitCode::SUCCESS,
        // A kubelet that ends a pod says why only of one that did not end well.
        Ok(End::Signalled(signal)) => ExitCode::from(128 + signal as u8),
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "cay-guest: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The same program with the same arguments in this process, as if it had just been started.
fn begin_anew() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let error = std::process::Command::new("/proc/self/exe").args(arguments).exec();
    let _ = writeln!(std::io::stderr(), "cay-guest: Cannot restart: {error}");
    ExitCode::FAILURE
}

fn bridge(path: &OsStr, later: bool) -> ExitCode {
    ExitCode::from(cay_guest::bridge::run(path.as_ref(), later) as u8)
}

fn pack(direction: pack::Direction, arguments: &[std::ffi::OsString]) -> ExitCode {
    pack::run(direction, arguments).map_or_else(usage, ExitCode::from)
}

fn usage() -> ExitCode {
    const MODES: &str = "dial PATH | serve PATH | bridge PATH [later] | install DIR [MODE:DIR]… | listen PORT | reach MILLISECONDS ADDRESS… | probe [relay HOST PORT] | version | pack --root DIR --ids HOSTID:SIZE [--path PATH]… | unpack --root DIR --ids HOSTID:SIZE | on-tree --tree DIR --at DIR --log FILE [--shift FROM:TO:SIZE] [--user ROOT:SIZE:FILE] [--limit RLIMIT_NAME:N]… [--mount DIR --mount-at DIR --mount-as KIND,ACCESS [--mount-subpath PATH]]… [--point PATH [--point-mode MODE]]… -- PROGRAM ARGUMENT… | hostname PID NAME | sandbox-call SOCKET REQUEST (read|new):FILE… | launch | btrfs-snapshot SUBVOLUME COPY (ro|rw) (LIMIT|-) | bucket-mount --at DIR --socket PATH --id ID --access (ro|rw) [--patience SECONDS]";
    let _ = writeln!(std::io::stderr(), "Usage: cay-guest {MODES}");
    ExitCode::from(2)
}
