//! The connection to the server: connecting, receiving, disconnecting.

use super::*;

impl Guest {
    pub(super) fn dial(&mut self) {
        let Endpoint::Dial(path) = &self.endpoint else { return };
        match sockets::dial(path) {
            Ok(socket) => self.connected(ByteStream::Plain(socket)),
            Err(_) => self.dial_later(),
        }
    }

    pub(super) fn dial_later(&mut self) {
        if matches!(self.endpoint, Endpoint::Dial(_)) {
            let pause = self.backoff.pause();
            self.context.timers.after(pause, Timer::Dial);
        }
    }

    pub(super) fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        if let Ok(socket) = sockets::accept(listener) {
            self.disconnect();
            self.connected(ByteStream::Plain(socket));
        }
    }

    /// A client connects to the TCP port.
    pub(super) fn called(&mut self) {
        self.callers.accept(&self.context.poller);
        if !self.callers_armed && self.callers.any() {
            self.callers_armed = true;
            self.context.timers.after(CALLERS_INTERVAL, Timer::Callers);
        }
    }

    /// A caller that has the key replaces the connection before, as with `serve`.
    pub(super) fn caller_ready(&mut self, number: u32) {
        if let Some(stream) = self.callers.ready(number, &self.context.poller) {
            self.disconnect();
            self.connected(ByteStream::Noise(Box::new(stream)));
        }
    }

    pub(super) fn look_at_callers(&mut self) {
        self.callers.sweep();
        self.callers_armed = self.callers.any();
        if self.callers_armed {
            self.context.timers.after(CALLERS_INTERVAL, Timer::Callers);
        }
    }

    pub(super) fn connected(&mut self, socket: ByteStream) {
        if self.context.poller.add(socket.fd(), Token::Link, true, false).is_err() {
            self.dial_later();
            return;
        }
        self.socket = Some(socket);
        self.write_watched = false;
        self.serial += 1;
        self.context.timers.after(HELLO_TIMEOUT, Timer::Hello(self.serial));
        self.connection = Connection::new(&Value::map([
            ("protocol", 1.into()),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("boot", Value::Bytes(self.boot.to_vec())),
            ("features", Value::Array(self.egress.features().iter().map(|name| (*name).into()).collect())),
        ]));
    }

    /// Drops the connection and all its streams. Commands go on.
    pub(super) fn disconnect(&mut self) {
        self.socket = None;
        self.connection = Connection::default();
        self.ready.clear();
        self.forget_held();
        self.egress_lost();
        for (stream, handler) in std::mem::take(&mut self.handlers) {
            self.release(stream, handler);
        }
    }

    pub(super) fn release(&mut self, stream: u32, handler: Handler) {
        match handler {
            Handler::Reader(reader) => self.commands.detach(reader.key, stream),
            Handler::Task(mailbox) => mailbox.gone(),
            Handler::Forward(forward) => forward.abort(),
            Handler::Flow(_) => self.flow_refused(stream),
            Handler::Still => self.let_go(stream),
            Handler::Ports(_) | Handler::DatagramPort(_) => {}
        }
    }

    pub(super) fn lost(&mut self) {
        if self.socket.is_some() {
            self.disconnect();
            self.dial_later();
        }
    }

    pub(super) fn link_ready(&mut self, readable: bool) {
        if !readable {
            return;
        }
        // Events have slices of it, while what handles them may use the scratch buffer.
        let mut buffer = std::mem::take(&mut self.incoming);
        for _ in 0..READS_PER_TURN {
            if !self.receive(&mut buffer) {
                break;
            }
        }
        self.incoming = buffer;
    }

    /// Reads once. True if there may be more.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        match socket.read(buffer) {
            Ok(Received::Closed) | Err(_) => {
                self.lost();
                false
            }
            Ok(Received::Nothing) => false,
            Ok(Received::Bytes { count, more }) => {
                self.carried += count;
                let mut events = Vec::new();
                let result = self.connection.receive(&buffer[..count], &mut events);
                self.events(events);
                if result.is_err() {
                    self.lost();
                    return false;
                }
                more
            }
        }
    }

    /// Handles them in their order; DATA for one connection that follows each other goes on together.
    fn events(&mut self, events: Vec<Event<'_>>) {
        let mut events = events.into_iter().peekable();
        while let Some(event) = events.next() {
            let Event::Data(stream, channel, bytes) = event else {
                self.event(event);
                continue;
            };
            let follows = |event: &Event<'_>| matches!(event, Event::Data(other, ..) if *other == stream);
            let is_forward = matches!(self.handlers.get(&stream), Some(Handler::Forward(_)));
            // What the frozen state holds back is decided for each event.
            if !is_forward || self.frozen.is_some() || !events.peek().is_some_and(follows) {
                self.event(Event::Data(stream, channel, bytes));
                continue;
            }
            let mut run = vec![bytes];
            while run.len() < MAX_RUN {
                let Some(Event::Data(_, _, bytes)) = events.next_if(follows) else { break };
                run.push(bytes);
            }
            if let Some(Handler::Forward(forward)) = self.handlers.get_mut(&stream) {
                if !forward.data_run(&run, &mut self.connection) {
                    self.make_ready(stream);
                }
            }
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>) {
        let Some(event) = self.hold(event) else { return };
        match event {
            Event::Hello(hello) => {
                self.backoff.reset();
                self.configure(&hello);
                self.egress_connected(hello.flag("egress"));
            }
            Event::Open(stream, request) => {
                if let Err(failure) = self.open(stream, request) {
                    self.connection.reset(stream, &failure);
                }
            }
            Event::Message(stream, message) => {
                if self.looked_up(stream, Some(&message)) {
                    return;
                }
                if let Some(Handler::Reader(reader)) = self.handlers.get(&stream) {
                    if message.flag("closeStdin") {
                        self.commands.close_input(reader.key, &self.context.poller);
                    }
                }
            }
            Event::Data(stream, _, bytes) => match self.handlers.get_mut(&stream) {
                Some(Handler::Reader(reader)) => {
                    self.commands.input(reader.key, stream, bytes.into_owned(), &self.context.poller)
                }
                Some(Handler::Task(mailbox)) => mailbox.data(bytes.into_owned()),
                Some(Handler::Forward(forward)) => {
                    if !forward.data(&bytes, &mut self.connection) {
                        self.make_ready(stream);
                    }
                }
                Some(Handler::Flow(_)) => self.flow_data(stream, &bytes),
                Some(Handler::DatagramPort(port)) => {
                    if !port.data(&bytes, &mut self.connection) {
                        self.handlers.remove(&stream);
                        let failure = Failure::new("invalid_argument", "A datagram is too long");
                        self.connection.reset(stream, &failure);
                    }
                }
                Some(Handler::Ports(_) | Handler::Still) | None => self.connection.taken(stream, bytes.len()),
            },
            Event::Credit(stream, amount) => {
                match self.handlers.get_mut(&stream) {
                    Some(Handler::Reader(reader)) => {
                        let acknowledged = reader.credit(amount);
                        self.commands.acknowledge(reader.key, acknowledged, &self.context.poller);
                    }
                    Some(Handler::Task(mailbox)) => mailbox.credit(amount),
                    _ => {}
                }
                self.make_ready(stream);
            }
            Event::Ended(stream) => match self.handlers.get_mut(&stream) {
                Some(Handler::Task(mailbox)) => mailbox.ended(),
                Some(Handler::Flow(_)) => self.end_flow(stream),
                Some(Handler::DatagramPort(_)) => {
                    self.handlers.remove(&stream);
                    self.connection.end(stream);
                }
                Some(Handler::Forward(forward)) => {
                    forward.ended();
                    self.make_ready(stream);
                }
                Some(Handler::Still) => {
                    self.handlers.remove(&stream);
                    self.let_go(stream);
                    self.connection.end(stream);
                }
                _ => {
                    self.looked_up(stream, None);
                }
            },
            Event::Reset(stream) => {
                self.looked_up(stream, None);
                if let Some(handler) = self.handlers.remove(&stream) {
                    self.release(stream, handler);
                }
            }
            Event::Hangup(delay) => {
                self.disconnect();
                self.backoff.hurry();
                if matches!(self.endpoint, Endpoint::Dial(_)) {
                    self.context.timers.after(Duration::from_millis(delay), Timer::Dial);
                }
            }
        }
    }
}
