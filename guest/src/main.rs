//! `cay-guest dial PATH | serve PATH | bridge PATH | pack … | unpack …`

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use cay_guest::event_loop;
use cay_guest::link::Way;
use cay_guest::pack;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let result = match &arguments[..] {
        [mode, path] if mode == OsStr::new("dial") => event_loop::run(Way::Dial(PathBuf::from(path))),
        [mode, path] if mode == OsStr::new("serve") => event_loop::run(Way::Serve(PathBuf::from(path))),
        [mode, path] if mode == OsStr::new("bridge") => return ExitCode::from(cay_guest::bridge::run(path.as_ref()) as u8),
        [mode] if mode == OsStr::new("version") => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        [mode, rest @ ..] if mode == OsStr::new("pack") => return pack(pack::Way::Pack, rest),
        [mode, rest @ ..] if mode == OsStr::new("unpack") => return pack(pack::Way::Unpack, rest),
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "cay-guest: {message}");
            ExitCode::FAILURE
        }
    }
}

fn pack(way: pack::Way, arguments: &[std::ffi::OsString]) -> ExitCode {
    pack::run(way, arguments).map_or_else(usage, ExitCode::from)
}

fn usage() -> ExitCode {
    const MODES: &str =
        "dial PATH | serve PATH | bridge PATH | version | pack --root DIR --ids HOSTID:SIZE [--path PATH]… | unpack --root DIR --ids HOSTID:SIZE";
    let _ = writeln!(std::io::stderr(), "Usage: cay-guest {MODES}");
    ExitCode::from(2)
}
