//! Names: asked of the name server of the sandbox, and of others.

use std::io::{Error, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::{Said, number};

const TYPE_A: u16 = 1;
/// Where the guest answers, if nothing else is configured.
const OWN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);

/// The address of a name, as programs of the sandbox find it.
pub fn address_of(name: &str, within: Duration) -> Result<IpAddr, Error> {
    if let Ok(address) = name.parse() {
        return Ok(address);
    }
    let answer = over_udp(name_server(), &question(name, TYPE_A)?, within)?;
    let found = addresses(&answer).first().copied();
    found.map(IpAddr::V4).ok_or(Error::from_raw_os_error(libc::ENOENT))
}

/// Asks the own name server. Says the code of the answer, how many records it has, and the addresses.
pub fn ask_own(name: &str, kind: u16, within: Duration) -> Said {
    Ok(answer_text(&over_udp(name_server(), &question(name, kind)?, within)?))
}

/// Asks another one.
pub fn ask(server: &str, port: u16, tcp: bool, name: &str, within: Duration) -> Said {
    let server = SocketAddr::new(number::<IpAddr>(server)?, port);
    let question = question(name, TYPE_A)?;
    if !tcp {
        return Ok(answer_text(&over_udp(server, &question, within)?));
    }
    let mut stream = TcpStream::connect_timeout(&server, within)?;
    stream.set_read_timeout(Some(within))?;
    stream.write_all(&(question.len() as u16).to_be_bytes())?;
    stream.write_all(&question)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer_text(&answer))
}

/// Asks for so many names, one after the other. Says how many were answered, and in how many milliseconds.
pub fn many(count: u32, suffix: &str) -> Said {
    let from = Instant::now();
    let mut answered = 0;
    for at in 0..count.min(100_000) {
        let question = question(&format!("n{at}.{suffix}"), TYPE_A)?;
        answered += u32::from(over_udp(name_server(), &question, Duration::from_secs(2)).is_ok());
    }
    Ok(format!("answered {answered} {}", from.elapsed().as_millis()))
}

fn name_server() -> SocketAddr {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let found = text.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse().ok()).next();
    SocketAddr::new(found.unwrap_or(IpAddr::V4(OWN)), 53)
}

/// Bytes of a name as they are, so that also a malformed one can be asked for. `\NNN` is a byte in decimals.
fn question(name: &str, kind: u16) -> Result<Vec<u8>, Error> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let bytes = unescape(label);
        message.push(u8::try_from(bytes.len()).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?);
        message.extend(bytes);
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    Ok(message)
}

fn unescape(label: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = label;
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend(before.bytes());
        let (digits, left) = after.split_at(after.len().min(3));
        out.push(digits.parse().unwrap_or(b'?'));
        rest = left;
    }
    out.extend(rest.bytes());
    out
}

fn over_udp(server: SocketAddr, question: &[u8], within: Duration) -> Result<Vec<u8>, Error> {
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(within))?;
    socket.connect(server)?;
    socket.send(question)?;
    let mut answer = vec![0; 1500];
    let count = socket.recv(&mut answer).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::from_raw_os_error(libc::ETIMEDOUT),
        _ => error,
    })?;
    answer.truncate(count);
    Ok(answer)
}

fn answer_text(answer: &[u8]) -> String {
    if answer.len() < 12 {
        return "short".into();
    }
    let records = u16::from_be_bytes([answer[6], answer[7]]);
    let found: Vec<String> = addresses(answer).iter().map(ToString::to_string).collect();
    format!("code {} records {records} {}", answer[3] & 15, found.join(","))
}

/// Those of an answer with one question, whose records point at the name of it.
fn addresses(answer: &[u8]) -> Vec<Ipv4Addr> {
    let mut at = 12;
    while answer.get(at).is_some_and(|length| *length != 0) {
        at += usize::from(answer[at]) + 1;
    }
    at += 5;
    let mut found = Vec::new();
    while let Some([_, _, 0, 1, _, _, _, _, _, _, 0, 4, a, b, c, d]) = answer.get(at..at + 16) {
        found.push(Ipv4Addr::new(*a, *b, *c, *d));
        at += 16;
    }
    found
}
