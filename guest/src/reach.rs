//! `cay-guest listen PORT` and `cay-guest reach MILLISECONDS ADDRESS:PORT…`: what a pod of this network can
//! connect to.
//!
//! A server that wants to know whether its cluster keeps pods apart starts two that listen, and has each tell
//! what it reaches.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// Accepts connections on every address, and closes each at once, until the process is ended.
pub fn listen(port: &OsStr) -> Result<(), String> {
    let wanted = port.to_str().and_then(|text| text.parse().ok()).filter(|port: &u16| *port > 0);
    let Some(port) = wanted else { return Err(format!("\"{}\" is not a port", port.display())) };
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
        .map_err(|error| format!("Cannot listen on port {port}: {error}"))?;
    // The first process of a container ignores a signal that it has no handler for.
    // SAFETY: the default action of SIGTERM cannot end this process, and `_exit` may be called in a handler.
    unsafe { libc::signal(libc::SIGTERM, ended as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    for connection in listener.incoming() {
        drop(connection);
    }
    Ok(())
}

extern "C" fn ended(_: libc::c_int) {
    // SAFETY: it is async-signal-safe.
    unsafe { libc::_exit(0) }
}

/// Tries all addresses at once, each for that long, and prints a line for each: itself, and `reached` or why
/// not.
pub fn reach(milliseconds: &OsStr, addresses: &[OsString]) -> ExitCode {
    let within =
        milliseconds.to_str().and_then(|text| text.parse().ok()).filter(|ms: &u64| (1..=60_000).contains(ms));
    let targets: Option<Vec<SocketAddr>> = addresses.iter().map(|text| text.to_str()?.parse().ok()).collect();
    let (Some(within), Some(targets)) = (within.map(Duration::from_millis), targets) else {
        let _ = writeln!(
            std::io::stderr(),
            "cay-guest: reach takes milliseconds from 1 to 60000, and addresses with ports"
        );
        return ExitCode::from(2);
    };
    let attempts: Vec<_> = targets
        .into_iter()
        .map(|target| (target, std::thread::spawn(move || attempt(target, within))))
        .collect();
    for (target, attempt) in attempts {
        let said = attempt.join().unwrap_or_else(|_| "failed".into());
        if writeln!(std::io::stdout(), "{target} {said}").is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn attempt(target: SocketAddr, within: Duration) -> String {
    match TcpStream::connect_timeout(&target, within) {
        Ok(_) => "reached".into(),
        Err(error) => error.to_string().replace('\n', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_listens_is_reached_and_one_that_does_not_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        assert_eq!(attempt(there, Duration::from_secs(5)), "reached");
        drop(listener);
        assert_ne!(attempt(there, Duration::from_secs(5)), "reached");
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for port in ["", "0", "65536", "http"] {
            assert!(listen(OsStr::new(port)).unwrap_err().contains("is not a port"));
        }
    }
}
