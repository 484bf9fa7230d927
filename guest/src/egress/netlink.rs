//! Netlink messages, as far as routes, addresses and packet rules need them.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NESTED: u16 = 0x8000;
/// The kernel's number of the loopback device, in every network namespace.
pub const LOOPBACK_INDEX: u32 = 1;

/// Messages that are sent together.
#[derive(Default)]
pub struct Messages {
    bytes: Vec<u8>,
    count: u32,
    asked: usize,
}

impl Messages {
    /// Adds a message: its fixed part, then what `attributes` adds.
    pub fn add(&mut self, kind: u16, flags: i32, fixed: &[u8], attributes: impl FnOnce(&mut Attributes)) {
        self.count += 1;
        if flags & libc::NLM_F_ACK != 0 {
            self.asked += 1;
        }
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        self.bytes.extend(self.count.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend_from_slice(fixed);
        let mut inner = Attributes(std::mem::take(&mut self.bytes));
        attributes(&mut inner);
        self.bytes = inner.0;
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Sends all of them and waits until the kernel has acknowledged those that asked for it.
    pub fn send(&self, protocol: i32) -> Result<(), i32> {
        let fd = open(protocol)?;
        // SAFETY: the bytes live for the call.
        let sent = unsafe { libc::send(fd.as_raw_fd(), self.bytes.as_ptr().cast(), self.bytes.len(), 0) };
        if sent < 0 {
            return Err(sys::errno());
        }
        let mut answered = 0;
        let mut buffer = [0u8; 8192];
        while answered < self.asked {
            let Some(read) = sys::read(fd.as_raw_fd(), &mut buffer)?.filter(|read| *read > 0) else {
                return Err(libc::EIO);
            };
            answered += acknowledged(&buffer[..read])?;
        }
        Ok(())
    }
}

/// Gives the loopback device one more address.
pub fn add_loopback_address(address: Ipv4Addr, prefix: u8) -> Result<(), i32> {
    let mut fixed = vec![libc::AF_INET as u8, prefix, 0, 0];
    fixed.extend(LOOPBACK_INDEX.to_ne_bytes());
    let mut messages = Messages::default();
    messages.add(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_ACK, &fixed, |attributes| {
        attributes.bytes(libc::IFA_ADDRESS, &address.octets());
        attributes.bytes(libc::IFA_LOCAL, &address.octets());
    });
    messages.send(libc::NETLINK_ROUTE)
}

/// A socket whose answers come within a second or not at all.
fn open(protocol: i32) -> Result<OwnedFd, i32> {
    // SAFETY: the timeout lives for the call.
    unsafe {
        let fd = sys::owned(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol))?;
        let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const second).cast(),
            size_of_val(&second) as u32,
        );
        Ok(fd)
    }
}

/// How many acknowledgements there are; the first refusal is the error.
fn acknowledged(mut bytes: &[u8]) -> Result<usize, i32> {
    let mut count = 0;
    while bytes.len() >= HEADER + 4 {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = (word(0) as usize).max(HEADER);
        if u16::from_ne_bytes([bytes[4], bytes[5]]) == NLMSG_ERROR {
            match word(HEADER) as i32 {
                0 => count += 1,
                error => return Err(-error),
            }
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(count)
}

/// Attributes of a message, one after the other.
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// An attribute with these bytes.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.0.extend(((value.len() + 4) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// A text with its final zero.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat());
    }

    /// A number in network order, as packet rules have it.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// An attribute of attributes.
    pub fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Attributes)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend((kind | NESTED).to_ne_bytes());
        inner(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_attributes_have_their_lengths() {
        let mut messages = Messages::default();
        messages.add(24, libc::NLM_F_ACK, &[9, 9, 9, 9], |attributes| {
            attributes.nested(4, |inner| inner.text(1, "ab"));
        });
        let bytes = &messages.bytes;
        assert_eq!(bytes.len(), 16 + 4 + 4 + 8);
        assert_eq!(bytes[..4], 32u32.to_ne_bytes());
        assert_eq!(bytes[20..], [12, 0, 4, 0x80, 7, 0, 1, 0, b'a', b'b', 0, 0]);
        assert_eq!(messages.asked, 1);
    }

    #[test]
    fn acknowledgements_are_counted_and_the_first_refusal_is_the_error() {
        let answer = |error: i32| {
            let mut bytes = 36u32.to_ne_bytes().to_vec();
            bytes.extend(NLMSG_ERROR.to_ne_bytes());
            bytes.resize(16, 0);
            bytes.extend(error.to_ne_bytes());
            bytes.resize(36, 0);
            bytes
        };
        assert_eq!(acknowledged(&[answer(0), answer(0)].concat()), Ok(2));
        assert_eq!(acknowledged(&[answer(0), answer(-libc::EPERM)].concat()), Err(libc::EPERM));
        assert_eq!(acknowledged(&[0; 7]), Ok(0));
        assert_eq!(acknowledged(&[0xff; 64]), Ok(0));
    }
}
