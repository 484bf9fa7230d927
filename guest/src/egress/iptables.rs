//! The redirect of gVisor's network stack, which knows the table of `iptables` and no netlink for it.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use super::netlink;
use crate::sys;

const IPT_SO_SET_REPLACE: i32 = 64;
const IP_HEADER: usize = 84;
const ENTRY: usize = 112;
const STANDARD: usize = ENTRY + 40;
const REDIRECT: usize = ENTRY + 56;
const ERROR: usize = ENTRY + 64;
/// The hooks of the table `nat`: before routing, arriving, leaving, after routing.
const HOOKS: u32 = 0b11011;
const ACCEPT: i32 = -2;
const INVERT_DESTINATION: u8 = 0x10;
const WITH_PORT: u32 = 2;
/// Entries that the table has before; their counters are handed back.
const MAX_COUNTERS: usize = 64;

/// Every address becomes one of the loopback device: two halves, each with an address of its own in it.
pub fn make_all_local() -> Result<(), i32> {
    for address in [Ipv4Addr::new(100, 64, 0, 1), Ipv4Addr::new(198, 18, 0, 1)] {
        netlink::add_loopback_address(address, 1)?;
    }
    Ok(())
}

/// Replaces the table `nat` by one that redirects TCP that leaves for anything but 127.0.0.0/8.
pub fn redirect_to(port: u16) -> Result<(), i32> {
    let mut counters = [0u64; 2 * MAX_COUNTERS];
    let table = nat_table(port, counters.as_mut_ptr() as u64);
    // SAFETY: the table lives for the call; its counters have room for more than gVisor's table has.
    unsafe {
        let fd =
            sys::owned(libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW))?;
        let (data, size) = (table.as_ptr().cast(), table.len() as u32);
        if libc::setsockopt(fd.as_raw_fd(), libc::SOL_IP, IPT_SO_SET_REPLACE, data, size) < 0 {
            return Err(sys::errno());
        }
    }
    Ok(())
}

fn nat_table(port: u16, counters: u64) -> Vec<u8> {
    let mut out = b"nat".to_vec();
    out.resize(32, 0);
    let word = |out: &mut Vec<u8>, value: usize| out.extend((value as u32).to_ne_bytes());
    word(&mut out, HOOKS as usize);
    word(&mut out, 6);
    word(&mut out, 4 * STANDARD + REDIRECT + ERROR);
    let leaving = 2 * STANDARD;
    let after = leaving + REDIRECT + STANDARD;
    for offset in [0, STANDARD, 0, leaving, after] {
        word(&mut out, offset);
    }
    for offset in [0, STANDARD, 0, leaving + REDIRECT, after] {
        word(&mut out, offset);
    }
    word(&mut out, MAX_COUNTERS.min(5));
    out.extend(counters.to_ne_bytes());
    standard(&mut out);
    standard(&mut out);
    redirect(&mut out, port);
    standard(&mut out);
    standard(&mut out);
    entry(&mut out, [0; IP_HEADER], ERROR, "ERROR", b"ERROR");
    out
}

/// Accepts.
fn standard(out: &mut Vec<u8>) {
    entry(out, [0; IP_HEADER], STANDARD, "", &ACCEPT.to_ne_bytes());
}

fn redirect(out: &mut Vec<u8>, port: u16) {
    let mut ip = [0; IP_HEADER];
    ip[4] = 127;
    ip[12] = 255;
    ip[80..82].copy_from_slice(&(libc::IPPROTO_TCP as u16).to_ne_bytes());
    ip[83] = INVERT_DESTINATION;
    let mut range = 1u32.to_ne_bytes().to_vec();
    range.extend(WITH_PORT.to_ne_bytes());
    range.extend([0; 8]);
    range.extend(port.to_be_bytes());
    range.extend(port.to_be_bytes());
    entry(out, ip, REDIRECT, "REDIRECT", &range);
}

/// What it matches, where its target begins and ends, its counters, and the target.
fn entry(out: &mut Vec<u8>, ip: [u8; IP_HEADER], size: usize, target: &str, data: &[u8]) {
    let start = out.len();
    out.extend(ip);
    out.extend([0; 4]);
    out.extend((ENTRY as u16).to_ne_bytes());
    out.extend((size as u16).to_ne_bytes());
    out.resize(start + ENTRY, 0);
    out.extend(((size - ENTRY) as u16).to_ne_bytes());
    out.extend_from_slice(target.as_bytes());
    out.resize(start + ENTRY + 32, 0);
    out.extend_from_slice(data);
    out.resize(start + size, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_layout_that_it_says() {
        let table = nat_table(65_053, 0x1122_3344_5566_7788);
        let word = |at: usize| u32::from_ne_bytes(table[at..at + 4].try_into().unwrap()) as usize;
        let size = word(40);
        assert_eq!(table.len(), 96 + size);
        assert_eq!(word(84), 5);
        assert_eq!(u64::from_ne_bytes(table[88..96].try_into().unwrap()), 0x1122_3344_5566_7788);
        let mut starts = vec![];
        let mut at = 0;
        while at < size {
            starts.push(at);
            let half = |at: usize| u16::from_ne_bytes(table[at..at + 2].try_into().unwrap()) as usize;
            assert_eq!(half(96 + at + 88), ENTRY);
            let next = half(96 + at + 90);
            assert_eq!(half(96 + at + ENTRY), next - ENTRY);
            at += next;
        }
        assert_eq!(at, size);
        assert_eq!(starts.len(), word(36));
        for hook in [0, 1, 3, 4] {
            assert!(starts.contains(&word(44 + 4 * hook)) && starts.contains(&word(64 + 4 * hook)));
        }
    }
}
