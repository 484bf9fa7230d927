//! `cay-guest probe`: what code in this sandbox can do, tried and not claimed.
//!
//! The server puts this program into a sandbox and tells it, line by line on standard input, what to try. It
//! tries, and prints one line for each: the words of what happened. It judges nothing: the server compares
//! what happened inside with what it saw outside.
//!
//! `cay-guest probe relay HOST PORT` is one connection of which standard input and output are the ends, so
//! that the server speaks any protocol from in here.
//!
//! Whatever is tried is harmless if it works: a namespace is unshared in a child, a module is empty, a file
//! is opened and not written. All the same it tries nothing outside of a sandbox: the first process must be a
//! guest.

mod kernel;
mod limits;
mod lookups;
mod relay;
mod sockets;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

/// What happened, in words that the server reads.
type Said = Result<String, std::io::Error>;

/// Runs the subcommand. None if the arguments are not its own.
pub fn run(arguments: &[OsString]) -> Option<ExitCode> {
    if !in_sandbox() {
        let _ = writeln!(std::io::stderr(), "cay-guest: A probe runs in a sandbox, and this is none");
        return Some(ExitCode::FAILURE);
    }
    match arguments {
        [] => Some(try_lines()),
        [mode, host, port] if mode == OsStr::new("relay") => {
            Some(relay::run(host.to_str()?, port.to_str()?.parse().ok()?))
        }
        _ => None,
    }
}

/// Whether the first process is a guest.
fn in_sandbox() -> bool {
    let line = std::fs::read("/proc/1/cmdline").unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    matches!(&words[..], [program, b"dial" | b"serve", ..] if program.ends_with(b"cay-guest") || program.ends_with(b"cay/guest"))
}

fn try_lines() -> ExitCode {
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return ExitCode::FAILURE };
        let words: Vec<&str> = line.split(' ').collect();
        let said = match attempt(&words) {
            Ok(said) => said,
            Err(error) => name_of(&error),
        };
        if writeln!(out, "{}", said.replace('\n', " ")).and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn attempt(words: &[&str]) -> Said {
    match words {
        ["tcp", address, port, ms, data] => {
            sockets::tcp(address, number(port)?, millis(ms)?, &bytes_of(data)?)
        }
        ["udp", address, port, ms, data] => {
            sockets::udp(address, number(port)?, millis(ms)?, &bytes_of(data)?)
        }
        ["icmp", address, ms] => sockets::icmp(address, millis(ms)?),
        ["source-route", address, port, ms] => sockets::source_route(address, number(port)?, millis(ms)?),
        ["transparent"] => sockets::transparent(),
        ["socket", family, kind, protocol] => {
            sockets::socket(number(family)?, number(kind)?, number(protocol)?)
        }
        ["unix", path] => sockets::unix(path.as_bytes()),
        ["abstract", name] => sockets::unix(&[b"\0", name.as_bytes()].concat()),
        ["vsock", cid, port] => sockets::vsock(number(cid)?, number(port)?),
        ["add-address", address] => sockets::add_address(address),
        ["lookup", name, kind, ms] => lookups::ask_own(name, number(kind)?, millis(ms)?),
        ["ask", server, port, over, name, ms] => {
            lookups::ask(server, number(port)?, *over == "tcp", name, millis(ms)?)
        }
        ["lookups", count, suffix] => lookups::many(number(count)?, suffix),
        ["open", path, mode] => kernel::open(path, mode),
        ["read", path] => kernel::read(path),
        ["list", path] => kernel::list(path),
        ["owners"] => kernel::owners(),
        ["call", name] => kernel::call(name),
        ["processes", most] => limits::processes(number(most)?),
        ["files", most] => limits::files(number(most)?),
        ["memory", bytes] => limits::memory(number(bytes)?),
        ["disk", path, bytes] => limits::disk(path, number(bytes)?),
        _ => Ok("unknown".into()),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, std::io::Error> {
    text.parse().map_err(|_| std::io::Error::from_raw_os_error(libc::EINVAL))
}

fn millis(text: &str) -> Result<Duration, std::io::Error> {
    number(text).map(|ms: u64| Duration::from_millis(ms.clamp(1, 60_000)))
}

/// Bytes as hexadecimal digits; `-` is none.
fn bytes_of(text: &str) -> Result<Vec<u8>, std::io::Error> {
    if text == "-" {
        return Ok(Vec::new());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect::<Option<_>>()
        .ok_or(std::io::Error::from_raw_os_error(libc::EINVAL))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Turns the result of a system call into words.
fn checked(result: libc::c_long) -> Result<libc::c_long, std::io::Error> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}

/// The name of an error, as `errno.h` has it where it is one that is expected.
fn name_of(error: &std::io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(libc::EPERM) => "EPERM",
        Some(libc::ENOENT) => "ENOENT",
        Some(libc::EIO) => "EIO",
        Some(libc::ENXIO) => "ENXIO",
        Some(libc::EBADF) => "EBADF",
        Some(libc::EAGAIN) => "EAGAIN",
        Some(libc::ENOMEM) => "ENOMEM",
        Some(libc::EACCES) => "EACCES",
        Some(libc::EFAULT) => "EFAULT",
        Some(libc::EBUSY) => "EBUSY",
        Some(libc::EEXIST) => "EEXIST",
        Some(libc::ENODEV) => "ENODEV",
        Some(libc::ENOTDIR) => "ENOTDIR",
        Some(libc::EINVAL) => "EINVAL",
        Some(libc::EMFILE) => "EMFILE",
        Some(libc::ENFILE) => "ENFILE",
        Some(libc::ENOSPC) => "ENOSPC",
        Some(libc::EDQUOT) => "EDQUOT",
        Some(libc::EROFS) => "EROFS",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::ESRCH) => "ESRCH",
        Some(libc::ENOKEY) => "ENOKEY",
        Some(libc::EPROTONOSUPPORT) => "EPROTONOSUPPORT",
        Some(libc::ESOCKTNOSUPPORT) => "ESOCKTNOSUPPORT",
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Some(libc::EAFNOSUPPORT) => "EAFNOSUPPORT",
        Some(libc::EADDRNOTAVAIL) => "EADDRNOTAVAIL",
        Some(libc::ENETDOWN) => "ENETDOWN",
        Some(libc::ENETUNREACH) => "ENETUNREACH",
        Some(libc::EHOSTUNREACH) => "EHOSTUNREACH",
        Some(libc::ECONNRESET) => "ECONNRESET",
        Some(libc::ECONNREFUSED) => "ECONNREFUSED",
        Some(libc::ECONNABORTED) => "ECONNABORTED",
        Some(libc::ETIMEDOUT) => "ETIMEDOUT",
        Some(libc::EPROTO) => "EPROTO",
        Some(libc::EPIPE) => "EPIPE",
        Some(other) => return format!("errno {other}"),
        None if error.kind() == std::io::ErrorKind::TimedOut => "ETIMEDOUT",
        None if error.kind() == std::io::ErrorKind::WouldBlock => "EAGAIN",
        None => return format!("failed {:?}", error.kind()),
    };
    name.to_owned()
}
