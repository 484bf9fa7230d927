//! Egress: questions of programs go to the server, and so do their connections.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

use super::*;
use crate::egress::dns::{self, Bad, Code, Question, Record, TYPE_A, TYPE_PTR};
use crate::egress::resolv_conf;
use crate::egress::resolver::Asker;
use crate::ports::Listening;

const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Connections accepted before other work gets a turn.
const ACCEPTS_PER_TURN: usize = 64;
/// More ports of one name are not listened on.
const MAX_PORTS: usize = 32;

impl Guest {
    /// The server's HELLO has come, and says whether egress is on.
    pub(super) fn egress_connected(&mut self, on: bool) {
        self.switch_egress(on);
        self.egress.release(&self.context.poller);
    }

    /// The connection to the server is gone: what waits for it is answered.
    pub(super) fn egress_lost(&mut self) {
        for (_, lookup) in std::mem::take(&mut self.egress.lookups) {
            self.reply(lookup.asker, &lookup.question.answer(Code::Failed, Record::None));
        }
        self.egress.datagrams.forget();
        self.egress.hold(&self.context.poller);
        self.arm_egress();
    }

    pub(super) fn switch_egress(&mut self, on: bool) {
        if self.egress.is_on() == on {
            return;
        }
        if on && std::process::id() == 1 {
            // A root that is read-only stays as it is: its image names this name server, or none.
            let _ = resolv_conf::ensure(Path::new("/etc"));
        }
        self.egress.switch(on, &self.context.poller);
        let carried = |handler: &Handler| match handler {
            Handler::Forward(forward) => forward.is_carried(),
            Handler::Flow(_) => true,
            _ => false,
        };
        let ended: Vec<u32> = self
            .handlers
            .iter()
            .filter(|(_, handler)| !on && carried(handler))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in ended {
            if let Some(handler) = self.handlers.remove(&stream) {
                self.release(stream, handler);
            }
            self.connection.reset(stream, &Failure::new("cancelled", "Egress was switched off"));
        }
    }

    pub(super) fn egress_ready(&mut self, token: Token) {
        let questions = match (token, &mut self.egress.resolver) {
            (Token::Questions, Some(resolver)) => resolver.datagrams(),
            (Token::Asker(number), Some(resolver)) => resolver.messages(number),
            (Token::Askers, Some(resolver)) => {
                resolver.accept(&self.context.poller);
                self.arm_egress();
                return;
            }
            (Token::Redirected, _) => return self.accept_redirected(),
            (Token::Named(number), _) => return self.accept_named(number),
            _ => return,
        };
        for (asker, message) in questions {
            match dns::parse(&message) {
                Ok(question) => self.asked(question, asker),
                Err(Bad::Answer(answer)) => self.reply(asker, &answer),
                Err(Bad::Drop) => {}
            }
        }
    }

    /// Answers what can be answered here, and asks the server for the address of a name.
    fn asked(&mut self, question: Question, asker: Asker) {
        let answer = match (question.kind, question.name.as_deref()) {
            (_, None) => question.answer(Code::Absent, Record::None),
            (TYPE_PTR, _) => {
                let name = question.reversed().and_then(|address| self.egress.names.name_of(address));
                match &name {
                    Some(name) => question.answer(Code::Fine, Record::Name(name)),
                    None => question.answer(Code::Absent, Record::None),
                }
            }
            (TYPE_A, Some(name)) if name == "localhost" || name.ends_with(".localhost") => {
                question.answer(Code::Fine, Record::Address(Ipv4Addr::LOCALHOST))
            }
            // At once, so that nobody waits for IPv6 or for hints: there are none.
            (kind, Some(name)) if kind != TYPE_A || name.is_empty() => {
                question.answer(Code::Fine, Record::None)
            }
            (_, Some(name)) => match self.look_up(name) {
                Ok(stream) => {
                    self.egress.wait(stream, question, asker);
                    return self.arm_egress();
                }
                Err(code) => {
                    // Without the server a name that had an address keeps it.
                    match self.egress.names.find(name).filter(|_| code == Code::Failed) {
                        Some(address) => question.answer(Code::Fine, Record::Address(address)),
                        None => question.answer(code, Record::None),
                    }
                }
            },
        };
        self.reply(asker, &answer);
    }

    fn look_up(&mut self, name: &str) -> Result<u32, Code> {
        if !self.connection.greeted() {
            return Err(Code::Failed);
        }
        if !self.egress.may_look_up() {
            return Err(Code::Refused);
        }
        let request = Value::map([("op", "lookup".into()), ("name", name.into())]);
        let stream = self.connection.open(&request).ok_or(Code::Refused)?;
        self.connection.end(stream);
        Ok(stream)
    }

    /// The server's answer to a lookup, or that there is none. False if the stream is of something else.
    pub(super) fn looked_up(&mut self, stream: u32, message: Option<&Value>) -> bool {
        let Some(lookup) = self.egress.lookups.remove(&stream) else { return false };
        let answer = match (message.and_then(|message| message.text("kind")), &lookup.question.name) {
            (Some("address"), Some(name)) => {
                let address = self.egress.names.assign(name);
                if self.egress.redirect.is_none() {
                    let ports = message.map(|message| ports_of(message, "ports")).unwrap_or_default();
                    self.egress.listeners.listen(address, &ports, &self.context.poller);
                    self.arm_egress();
                }
                self.take_datagrams(address, message);
                lookup.question.answer(Code::Fine, Record::Address(address))
            }
            (Some("absent"), _) => lookup.question.answer(Code::Absent, Record::None),
            _ => lookup.question.answer(Code::Failed, Record::None),
        };
        self.reply(lookup.asker, &answer);
        true
    }

    fn take_datagrams(&mut self, address: Ipv4Addr, message: Option<&Value>) {
        let ports = message.map(|message| ports_of(message, "udpPorts")).unwrap_or_default();
        if ports.is_empty() {
            return;
        }
        for ended in self.egress.datagrams.listen(address, &ports, &self.context.poller) {
            self.end_flow(ended);
        }
        self.arm_egress();
    }

    fn reply(&mut self, asker: Asker, answer: &[u8]) {
        if let Some(resolver) = &mut self.egress.resolver {
            resolver.answer(asker, answer);
        }
    }

    fn accept_redirected(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(redirect) = &self.egress.redirect else { return };
            let fd = match sockets::accept(&redirect.fd) {
                Ok(fd) => fd,
                Err(errno) => return self.cannot_accept(errno),
            };
            let target = redirect.target(&fd);
            self.carry(fd, target);
        }
    }

    fn accept_named(&mut self, number: u32) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((listener, address, port)) = self.egress.listeners.used(number) else { return };
            match sockets::accept(listener) {
                Ok(fd) => self.carry(fd, Some((address, port))),
                Err(errno) => return self.cannot_accept(errno),
            }
        }
    }

    /// Without descriptors the loop would only spin: connections wait for a while.
    fn cannot_accept(&mut self, errno: i32) {
        if [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS].contains(&errno) {
            self.egress.hold(&self.context.poller);
            self.arm_egress();
        }
    }

    /// Opens a stream for a program's connection. What cannot be carried is reset, so that nobody waits.
    fn carry(&mut self, fd: OwnedFd, target: Option<(Ipv4Addr, u16)>) {
        let Some(stream) = target.and_then(|target| self.open_carried("egress", target)) else {
            return crate::egress::sockets::reset(fd);
        };
        let Some(counted) = self.egress.count() else {
            self.connection.reset(stream, &Failure::new("resource_exhausted", "Too many connections"));
            return crate::egress::sockets::reset(fd);
        };
        sockets::no_delay(&fd);
        let port = target.map_or(0, |(_, port)| port);
        self.handlers.insert(stream, Handler::Forward(Box::new(Forward::carry(stream, port, fd, counted))));
        self.make_ready(stream);
    }

    pub(super) fn open_carried(&mut self, op: &str, (address, port): (Ipv4Addr, u16)) -> Option<u32> {
        let (key, value) = if self.egress.names.contains(address) {
            ("name", self.egress.names.name_of(address)?.to_string())
        } else {
            ("address", address.to_string())
        };
        let request =
            Value::map([("op", op.into()), (key, Value::Text(value)), ("port", i64::from(port).into())]);
        self.connection.open(&request)
    }

    pub(super) fn arm_egress(&mut self) {
        if !std::mem::replace(&mut self.egress.armed, true) {
            self.context.timers.after(LOOK_AGAIN, Timer::Egress);
        }
    }

    pub(super) fn look_at_egress(&mut self) {
        self.egress.armed = false;
        for stream in self.egress.late() {
            self.looked_up(stream, None);
            self.connection.reset(stream, &Failure::new("deadline_exceeded", "The answer comes too late"));
        }
        if self.egress.held_until.is_some_and(|until| Instant::now() >= until) {
            self.egress.release(&self.context.poller);
        }
        for ended in self.egress.datagrams.sweep() {
            self.end_flow(ended);
        }
        let listening = self.egress.listeners.sweep() || !self.egress.datagrams.is_empty();
        let asking = self.egress.resolver.as_mut().is_some_and(|resolver| resolver.sweep());
        if listening || asking || !self.egress.lookups.is_empty() || self.egress.held_until.is_some() {
            self.arm_egress();
        }
    }

    /// The listening ports of the sandbox, without those of the guest.
    pub(super) fn listening(&self) -> BTreeSet<Listening> {
        let door = self.callers.port();
        ports::listening(|(port, address)| Some(*port) == door || self.egress.owns(*port, *address))
    }
}

fn ports_of(message: &Value, key: &str) -> Vec<u16> {
    let Some(Value::Array(ports)) = message.get(key) else { return Vec::new() };
    let port = |value: &Value| match value {
        Value::Int(port) => u16::try_from(*port).ok().filter(|port| *port > 0),
        _ => None,
    };
    ports.iter().filter_map(port).take(MAX_PORTS).collect()
}
