//! `cay-guest dial PATH | serve PATH | bridge PATH`

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use cay_guest::event_loop;
use cay_guest::link::Way;

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
        _ => {
            let _ = writeln!(std::io::stderr(), "Usage: cay-guest dial PATH | serve PATH | bridge PATH | version");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "cay-guest: {message}");
            ExitCode::FAILURE
        }
    }
}
