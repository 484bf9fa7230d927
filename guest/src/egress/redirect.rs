//! Brings every TCP connection that leaves the sandbox to one socket of the guest, whatever its address and
//! port.
//!
//! This needs CAP_NET_ADMIN in a network namespace that has the loopback device alone, so it is done once,
//! when the guest starts and before any command runs. The rights are dropped afterwards, by the guest too.
//! Where it cannot be done, the guest listens on addresses of 127.0.0.0/8 instead (`listeners.rs`).
//!
//! Every address becomes a local one, so that a connection does not fail for want of a route, and everything
//! but TCP is refused at once. Connections within the sandbox go to 127.0.0.0/8 and are left alone.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{nftables, sockets};
use crate::sys;

/// No usual program has it.
pub const PORT: u16 = 65_053;

const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

/// The socket that the connections come to. It does not listen until egress is on.
pub struct Redirect {
    /// The socket.
    pub fd: OwnedFd,
}

impl Redirect {
    /// Sets it up, if this is the first process of a sandbox that has no network card, and drops the rights.
    pub fn set_up() -> Option<Redirect> {
        // Elsewhere the rules would change the network of other processes.
        let alone = std::process::id() == 1 && only_loopback(&fs::read_to_string("/proc/net/dev").ok()?);
        let made = if alone { transparent().ok() } else { None };
        if std::process::id() == 1 {
            drop_rights();
        }
        made
    }

    /// The address and port that the program of an accepted connection meant.
    pub fn target(&self, accepted: &OwnedFd) -> Option<(Ipv4Addr, u16)> {
        // A program that connects to the guest's socket itself means nothing.
        sockets::local_address(accepted).filter(|(address, _)| !address.is_loopback())
    }
}

/// Packets are assigned to a transparent socket, without tracking connections, which would take
/// memory of the machine that no limit of the sandbox counts.
fn transparent() -> Result<Redirect, i32> {
    let fd = sockets::bind_tcp(Ipv4Addr::LOCALHOST, PORT)?;
    sockets::set(&fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?;
    nftables::assign_to(Ipv4Addr::LOCALHOST, PORT)?;
    nftables::make_all_local()?;
    nftables::refuse_more_rules()?;
    Ok(Redirect { fd })
}

/// The lines after the two of the heading name the devices.
fn only_loopback(devices: &str) -> bool {
    let mut names =
        devices.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.next() == Some("lo") && names.next().is_none()
}

/// Neither the guest nor a command can have them again: they are not in the bounding set either.
fn drop_rights() {
    let header: [u32; 2] = [0x2008_0522, 0];
    let mut sets = [0u32; 6];
    // SAFETY: header and sets have the sizes of this version of the call, and live for the calls.
    unsafe {
        for right in [CAP_NET_ADMIN, CAP_NET_RAW] {
            libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(right), 0, 0, 0);
        }
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) == 0 {
            for set in &mut sets[..3] {
                *set &= !(1 << CAP_NET_ADMIN | 1 << CAP_NET_RAW);
            }
            libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr());
        }
    }
}

/// Whether the guest's socket listens.
pub fn listen(redirect: &Redirect, on: bool) -> Result<(), i32> {
    // SAFETY: no pointers.
    let result = unsafe {
        if on {
            libc::listen(redirect.fd.as_raw_fd(), super::BACKLOG)
        } else {
            libc::shutdown(redirect.fd.as_raw_fd(), libc::SHUT_RD)
        }
    };
    if result < 0 { Err(sys::errno()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_card_is_seen() {
        let heading = "Inter-|   Receive\n face |bytes\n";
        assert!(only_loopback(&format!("{heading}    lo: 1 2 3\n")));
        assert!(!only_loopback(&format!("{heading}    lo: 1 2 3\n  eth0: 1 2\n")));
        assert!(!only_loopback(&format!("{heading}  eth0: 1 2\n")));
        assert!(!only_loopback(heading));
        assert!(!only_loopback(""));
    }

    #[test]
    fn nothing_is_changed_outside_a_sandbox() {
        assert!(Redirect::set_up().is_none());
    }
}
