//! Sending: ready streams take turns, one frame each, and all frames leave in one write.

use super::*;

impl Guest {
    pub(super) fn make_ready(&mut self, stream: u32) {
        match self.handlers.get_mut(&stream) {
            Some(Handler::Reader(Reader { queued, .. })) => {
                if !std::mem::replace(queued, true) {
                    self.ready.push_back(stream);
                }
            }
            Some(Handler::Forward(forward)) => {
                if !std::mem::replace(&mut forward.queued, true) {
                    self.ready.push_back(stream);
                }
            }
            Some(Handler::DatagramPort(port)) => {
                if !std::mem::replace(&mut port.queued, true) {
                    self.ready.push_back(stream);
                }
            }
            Some(Handler::Task(_)) => self.ready.push_back(stream),
            _ => {}
        }
    }

    /// Sends what the commands have, and writes what the connection takes.
    pub(super) fn settle(&mut self) {
        for _ in 0..8 {
            for (stream, failure) in std::mem::take(&mut self.commands.failed) {
                self.handlers.remove(&stream);
                self.connection.reset(stream, &failure);
            }
            for (stream, bytes) in std::mem::take(&mut self.commands.taken) {
                self.connection.taken(stream, bytes);
            }
            for stream in std::mem::take(&mut self.commands.wake) {
                self.make_ready(stream);
            }
            self.pump();
            if !self.flush() {
                break;
            }
            if self.ready.is_empty() && self.commands.wake.is_empty() {
                break;
            }
        }
        // Streams that are still ready get another turn at once.
        if !self.ready.is_empty() && self.connection.out.is_empty() {
            sys::poke(self.poke.as_raw_fd());
        }
        if self.carried > TRIM_AFTER && self.handlers.is_empty() && self.connection.out.is_empty() {
            self.carried = 0;
            // SAFETY: no pointers.
            unsafe { libc::malloc_trim(0) };
        }
    }

    /// Lets ready streams send, one frame each in turn, until enough waits to be written.
    pub(super) fn pump(&mut self) {
        while self.connection.out.len() < HIGH_WATER {
            let Some(stream) = self.ready.pop_front() else { return };
            let again = match self.handlers.get_mut(&stream) {
                Some(Handler::Reader(reader)) => {
                    reader.queued = false;
                    let step = match self.commands.get(reader.key) {
                        Some(command) => reader.step(stream, command, &mut self.connection),
                        None => {
                            self.connection
                                .reset(stream, &Failure::new("not_found", "The command was forgotten"));
                            Step::Done
                        }
                    };
                    let key = reader.key;
                    if step == Step::Done {
                        self.handlers.remove(&stream);
                        self.commands.detach(key, stream);
                    }
                    step == Step::More
                }
                Some(Handler::Task(mailbox)) => {
                    if mailbox.collect(&mut self.connection) {
                        self.handlers.remove(&stream);
                    }
                    false
                }
                Some(Handler::Forward(forward)) => {
                    forward.queued = false;
                    let outcome = forward.step(
                        &mut self.connection,
                        &self.context.poller,
                        &mut self.context.buffer,
                        true,
                    );
                    match outcome {
                        Outcome::Open => false,
                        Outcome::More => true,
                        Outcome::Done => {
                            self.handlers.remove(&stream);
                            false
                        }
                        Outcome::Failed(failure) => {
                            if let Some(handler) = self.handlers.remove(&stream) {
                                self.release(stream, handler);
                            }
                            self.connection.reset(stream, &failure);
                            false
                        }
                    }
                }
                Some(Handler::DatagramPort(port)) => {
                    port.queued = false;
                    port.step(&mut self.connection, &mut self.context.buffer);
                    false
                }
                _ => false,
            };
            if again {
                self.make_ready(stream);
            }
        }
    }

    /// Writes; true when everything went out.
    pub(super) fn flush(&mut self) -> bool {
        let Some(socket) = &mut self.socket else {
            self.connection.out.clear();
            return false;
        };
        let before = self.connection.out.len();
        let Ok(gone) = socket.write(&mut self.connection.out, &mut self.context.buffer) else {
            self.lost();
            return false;
        };
        self.carried += before - self.connection.out.len();
        let waiting = !gone;
        if waiting != self.write_watched {
            self.write_watched = waiting;
            self.context.poller.set(socket.fd(), Token::Link, true, waiting);
        }
        !waiting
    }
}
