//! Listening TCP ports, read from `/proc/net`, and only while a client watches them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::value::Value;

/// More ports are not reported.
const MAX_PORTS: usize = 4096;

/// A port and the address that it is bound to.
pub type Listening = (u16, IpAddr);

/// The listening ports, except the guest's own.
pub fn listening(own: impl Fn(&Listening) -> bool) -> BTreeSet<Listening> {
    let mut found = BTreeSet::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        if let Ok(text) = fs::read_to_string(path) {
            found.extend(
                text.lines()
                    .skip(1)
                    .filter_map(parse)
                    .filter(|found| !own(found))
                    .take(MAX_PORTS - found.len().min(MAX_PORTS)),
            );
        }
    }
    found
}

/// A line `sl local remote state …` whose state is LISTEN.
fn parse(line: &str) -> Option<Listening> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != "0A" {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // The address is printed in words of the machine's byte order.
    let word = |index: usize| {
        u32::from_str_radix(address.get(index * 8..index * 8 + 8)?, 16).ok().map(u32::to_ne_bytes)
    };
    match address.len() {
        8 => Some((port, IpAddr::V4(Ipv4Addr::from(word(0)?)))),
        32 => {
            let mut bytes = [0u8; 16];
            for index in 0..4 {
                bytes[index * 4..index * 4 + 4].copy_from_slice(&word(index)?);
            }
            let address = Ipv6Addr::from(bytes);
            Some((port, address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)))
        }
        _ => None,
    }
}

/// What a watcher has reported last.
#[derive(Default)]
pub struct Watcher {
    reported: BTreeSet<Listening>,
    greeted: bool,
}

impl Watcher {
    /// The changes since the last message; the first message is always sent.
    pub fn changes(&mut self, now: &BTreeSet<Listening>) -> Option<Value> {
        if self.greeted && self.reported == *now {
            return None;
        }
        let list = |ports: Vec<&Listening>| {
            let entry = |(port, address): &Listening| {
                Value::map([("port", i64::from(*port).into()), ("address", Value::Text(address.to_string()))])
            };
            Value::Array(ports.into_iter().map(entry).collect())
        };
        let message = Value::map([
            ("opened", list(now.difference(&self.reported).collect())),
            ("closed", list(self.reported.difference(now).collect())),
        ]);
        self.greeted = true;
        self.reported = now.clone();
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_lines_are_understood() {
        let v4 =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4 1";
        assert_eq!(parse(v4), Some((8080, "127.0.0.1".parse().unwrap())));
        let v6 = "   0: 00000000000000000000000000000000:1F92 00000000000000000000000000000000:0000 0A 0";
        assert_eq!(parse(v6), Some((8082, "::".parse().unwrap())));
        let connected = "   0: 0100007F:1F90 0100007F:9999 01 0";
        assert_eq!(parse(connected), None);
        for line in ["", "a b c d", "0: zz:zz x 0A", "0: 0100007F x 0A"] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn a_watcher_gets_a_report_at_once_and_then_changes() {
        let mut watcher = Watcher::default();
        let none = BTreeSet::new();
        let one = BTreeSet::from([(80, "0.0.0.0".parse().unwrap())]);
        assert!(watcher.changes(&none).is_some());
        assert!(watcher.changes(&none).is_none());
        assert!(watcher.changes(&one).is_some());
        let Some(message) = watcher.changes(&none) else { panic!("a closed port is a change") };
        assert!(matches!(message.get("closed"), Some(Value::Array(ports)) if ports.len() == 1));
    }
}
