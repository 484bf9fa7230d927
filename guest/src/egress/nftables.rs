//! Packet rules and routes of a Linux network namespace.
//!
//! The rules as `nft` would print them, beside a route that makes every address a local one:
//!
//! ```text
//! table ip cay {
//!   chain arriving {
//!     type filter hook prerouting priority mangle;
//!     ip daddr != 127.0.0.0/8 meta l4proto tcp tproxy to 127.0.0.1:65053 accept
//!     ip daddr != 127.0.0.0/8 meta l4proto tcp reject with tcp reset
//!   }
//! }
//! ```

use std::net::Ipv4Addr;

use super::netlink::{self, Attributes, LOOPBACK_INDEX, Messages};
use crate::sys;

const TABLE: &str = "cay";
const CHAIN: &str = "arriving";
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const PREROUTING: u32 = 0;
const MANGLE: i32 = -150;
const IPV4: u8 = 2;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const REGISTER_VERDICT: u32 = 0;
const META_L4PROTO: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const DESTINATION: u32 = 16;
const ACCEPT: u32 = 1;
const TCP_RESET: u32 = 1;

/// Assigns packets of TCP that are not for 127.0.0.0/8 to the socket there, and refuses them if it
/// does not listen.
pub fn assign_to(address: Ipv4Addr, port: u16) -> Result<(), i32> {
    // A kernel that cannot refuse before routing lets them pass to the program that listens on that port.
    send_rules(address, port, true).or_else(|_| send_rules(address, port, false))
}

fn send_rules(address: Ipv4Addr, port: u16, refuse: bool) -> Result<(), i32> {
    let make = libc::NLM_F_CREATE | libc::NLM_F_ACK;
    let batch = [0, 0, 0, SUBSYSTEM as u8];
    let ipv4 = [IPV4, 0, 0, 0];
    let mut messages = Messages::default();
    messages.add(BATCH_BEGIN, 0, &batch, |_| {});
    messages.add(NEW_TABLE, make, &ipv4, |table| table.text(1, TABLE));
    messages.add(NEW_CHAIN, make, &ipv4, |chain| {
        chain.text(1, TABLE);
        chain.text(3, CHAIN);
        chain.nested(4, |hook| {
            hook.number(1, PREROUTING);
            hook.number(2, MANGLE as u32);
        });
        chain.text(7, "filter");
    });
    messages.add(NEW_RULE, make | libc::NLM_F_APPEND, &ipv4, |rule| {
        expressions(rule, |list| {
            load(list, 1, &address.octets());
            load(list, 2, &port.to_be_bytes());
            expression(list, "tproxy", |tproxy| {
                tproxy.number(1, u32::from(IPV4));
                tproxy.number(2, 1);
                tproxy.number(3, 2);
            });
            expression(list, "immediate", |immediate| {
                immediate.number(1, REGISTER_VERDICT);
                immediate.nested(2, |data| data.nested(2, |verdict| verdict.number(1, ACCEPT)));
            });
        });
    });
    if refuse {
        messages.add(NEW_RULE, make | libc::NLM_F_APPEND, &ipv4, |rule| {
            expressions(rule, |list| {
                expression(list, "reject", |reject| {
                    reject.number(1, TCP_RESET);
                    reject.bytes(2, &[0]);
                });
            });
        });
    }
    messages.add(BATCH_END, 0, &batch, |_| {});
    messages.send(libc::NETLINK_NETFILTER)
}

/// The expressions of a rule, after those that pick its packets.
fn expressions(rule: &mut Attributes, rest: impl FnOnce(&mut Attributes)) {
    rule.text(1, TABLE);
    rule.text(2, CHAIN);
    rule.nested(4, |list| {
        expression(list, "meta", |meta| {
            meta.number(1, 1);
            meta.number(2, META_L4PROTO);
        });
        compare(list, EQUAL, libc::IPPROTO_TCP as u8);
        expression(list, "payload", |payload| {
            payload.number(1, 1);
            payload.number(2, NETWORK_HEADER);
            payload.number(3, DESTINATION);
            payload.number(4, 1);
        });
        compare(list, DIFFERENT, 127);
        rest(list);
    });
}

fn expression(list: &mut Attributes, name: &str, data: impl FnOnce(&mut Attributes)) {
    list.nested(1, |element| {
        element.text(1, name);
        element.nested(2, data);
    });
}

fn compare(list: &mut Attributes, how: u32, with: u8) {
    expression(list, "cmp", |cmp| {
        cmp.number(1, 1);
        cmp.number(2, how);
        cmp.nested(3, |data| data.bytes(1, &[with]));
    });
}

fn load(list: &mut Attributes, register: u32, value: &[u8]) {
    expression(list, "immediate", |immediate| {
        immediate.number(1, register);
        immediate.nested(2, |data| data.bytes(1, value));
    });
}

/// A route of the kind `local` for everything. More special ones, such as 127.0.0.0/8, stay as they are. The
/// C library takes a machine whose one address is 127.0.0.1 for one without IPv4, so there is another.
pub fn make_all_local() -> Result<(), i32> {
    netlink::add_loopback_address(Ipv4Addr::new(198, 18, 0, 1), 32)?;
    let (table, protocol, scope, kind) = (255, 4, 254, 2);
    let fixed = [libc::AF_INET as u8, 0, 0, 0, table, protocol, scope, kind, 0, 0, 0, 0];
    let mut messages = Messages::default();
    messages.add(
        libc::RTM_NEWROUTE,
        libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK,
        &fixed,
        |route| {
            route.bytes(libc::RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes());
            route.bytes(libc::RTA_PREFSRC, &Ipv4Addr::LOCALHOST.octets());
        },
    );
    messages.send(libc::NETLINK_ROUTE)
}

/// Neither the guest nor a command can open the kind of socket that rules are changed with: to have no right
/// to change them does not keep the kernel from reading what is sent there.
pub fn refuse_more_rules() -> Result<(), i32> {
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let load = |offset: u32| libc::sock_filter { code: LOAD, jt: 0, jf: 0, k: offset };
    // Jumps to the last instruction but one, which allows, if it is another value.
    let equal =
        |value: u32, otherwise: u8| libc::sock_filter { code: JUMP_EQUAL, jt: 0, jf: otherwise, k: value };
    let end = |with: u32| libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: with };
    let mut filter = [
        load(0),
        equal(libc::SYS_socket as u32, 5),
        load(16),
        equal(libc::AF_NETLINK as u32, 3),
        load(32),
        equal(libc::NETLINK_NETFILTER as u32, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives for the call, which copies it.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)
    };
    if result < 0 { Err(sys::errno()) } else { Ok(()) }
}
