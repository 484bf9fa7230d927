//! One connection whose ends are standard input and output.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use super::{lookups, name_of};

const WITHIN: Duration = Duration::from_secs(5);

/// The first line says `connected` or why not. Then bytes are copied both ways until the other side ends.
pub fn run(host: &str, port: u16) -> ExitCode {
    let connected = lookups::address_of(host, WITHIN)
        .and_then(|address| TcpStream::connect_timeout(&SocketAddr::new(address, port), WITHIN))
        .and_then(|stream| Ok((stream.try_clone()?, stream)));
    let mut out = std::io::stdout();
    let (mut writing, mut reading) = match connected {
        Ok(pair) => pair,
        Err(error) => {
            let _ = writeln!(out, "{}", name_of(&error));
            return ExitCode::FAILURE;
        }
    };
    let _ = writing.set_nodelay(true);
    if writeln!(out, "connected").and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        let mut input = std::io::stdin();
        while let Ok(count @ 1..) = input.read(&mut bytes) {
            if writing.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
        let _ = writing.shutdown(Shutdown::Write);
    });
    let mut bytes = [0; 65_536];
    loop {
        match reading.read(&mut bytes) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(count) => {
                if out.write_all(&bytes[..count]).and_then(|()| out.flush()).is_err() {
                    return ExitCode::FAILURE;
                }
            }
            Err(_) => return ExitCode::from(3),
        }
    }
}
