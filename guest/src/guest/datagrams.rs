//! Datagrams of programs, on their way to the server and back.

use super::*;
use crate::egress::datagrams::{HEAD, MAX_DATAGRAM, Program};

/// Datagrams that are read before other work gets a turn.
const PER_TURN: usize = 64;

impl Guest {
    /// A program has sent something to the address of a name.
    pub(super) fn datagrams_ready(&mut self, number: u32) {
        for _ in 0..PER_TURN {
            let room = &mut self.context.buffer[HEAD..=HEAD + MAX_DATAGRAM];
            let Some((length, program)) = self.egress.datagrams.receive(number, room) else { return };
            if length > MAX_DATAGRAM || !self.connection.greeted() {
                continue;
            }
            let stream =
                self.egress.datagrams.stream_of(number, program).or_else(|| self.open_flow(number, program));
            if let Some(stream) = stream {
                self.send_datagram(stream, length);
            }
        }
    }

    fn open_flow(&mut self, number: u32, program: Program) -> Option<u32> {
        let target = self.egress.datagrams.target(number)?;
        let stream = self.open_carried("datagrams", target)?;
        self.handlers.insert(stream, Handler::Flow(Unframer::default()));
        if let Some(ended) = self.egress.datagrams.begin(stream, number, program) {
            self.end_flow(ended);
        }
        self.arm_egress();
        Some(stream)
    }

    /// Sends what is in the buffer, or drops it: nothing waits for credit or for the connection.
    fn send_datagram(&mut self, stream: u32, length: usize) {
        let whole = HEAD + length;
        if self.connection.out.len() >= HIGH_WATER || self.connection.credit(stream) < whole as i64 {
            return;
        }
        self.context.buffer[..HEAD].copy_from_slice(&(length as u16).to_be_bytes());
        self.connection.data(stream, 0, &self.context.buffer[..whole]);
    }

    /// DATA of the server on the stream of a flow.
    pub(super) fn flow_data(&mut self, stream: u32, bytes: &[u8]) {
        let Some(Handler::Flow(flow)) = self.handlers.get_mut(&stream) else { return };
        let datagrams = &mut self.egress.datagrams;
        let fine = flow.push(bytes, |datagram| datagrams.hand(stream, datagram));
        self.connection.taken(stream, bytes.len());
        if !fine {
            self.egress.datagrams.end(stream);
            self.handlers.remove(&stream);
            self.connection.reset(stream, &Failure::new("invalid_argument", "A datagram is too long"));
        }
    }

    /// Ends the stream of a flow that is forgotten already, or that the server has ended.
    pub(super) fn end_flow(&mut self, stream: u32) {
        self.egress.datagrams.end(stream);
        self.handlers.remove(&stream);
        self.connection.end(stream);
    }

    /// The server has reset a flow: others to the same target end, too.
    pub(super) fn flow_refused(&mut self, stream: u32) {
        for ended in self.egress.datagrams.refuse(stream) {
            self.end_flow(ended);
        }
    }
}
