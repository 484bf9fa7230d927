//! The protocol of one connection, without its socket: which streams are open, and how much each side may
//! send.
//!
//! Bytes go in, events come out, and frames wait in `out`. Nothing here does input or output, so all of it
//! can be tested with random bytes.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::failure::Failure;
use crate::transport::frame::{Broken, Header, INITIAL_CREDIT, Kind, Parsed, Parser, STRICT_CREDIT};
use crate::transport::write_queue::WriteQueue;
use crate::value::Value;

/// Streams that may be open at once.
const MAX_STREAMS: usize = 4096;
/// Credit is granted in pieces of at least this size; small ones would cost a frame each.
pub const GRANT: u32 = 65_536;
/// A stream that has taken this much fast is given a wider window, so that neither side waits for the other's
/// wakeups.
const WIDE_AFTER: u32 = 262_144;
/// What a wide window has beyond the initial credit. The memory is the sandbox's.
const WIDER: u32 = 786_432;
/// Credit of a wide window is granted in pieces of this size.
pub const WIDE_GRANT: u32 = 262_144;
/// Windows that may be wide at once.
const MAX_WIDE: usize = 8;
/// More credit than this makes no difference.
const MAX_CREDIT: i64 = 1 << 40;

/// An event from the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Its HELLO: streams may be opened from now on.
    Hello(Value),
    /// A new stream.
    Open(u32, Value),
    /// A MESSAGE on an open stream.
    Message(u32, Value),
    /// Some DATA on an open stream.
    Data(u32, u8, Cow<'a, [u8]>),
    /// We may send that many more bytes.
    Credit(u32, u32),
    /// The server sends no more on this stream.
    Ended(u32),
    /// The stream is over.
    Reset(u32),
    /// Hang up and dial again after so many milliseconds.
    Hangup(u64),
}

impl Event<'_> {
    /// The event with bytes of its own, for as long as it has to wait.
    pub fn into_owned(self) -> Event<'static> {
        match self {
            Event::Hello(hello) => Event::Hello(hello),
            Event::Open(stream, request) => Event::Open(stream, request),
            Event::Message(stream, message) => Event::Message(stream, message),
            Event::Data(stream, channel, bytes) => {
                Event::Data(stream, channel, Cow::Owned(bytes.into_owned()))
            }
            Event::Credit(stream, amount) => Event::Credit(stream, amount),
            Event::Ended(stream) => Event::Ended(stream),
            Event::Reset(stream) => Event::Reset(stream),
            Event::Hangup(delay) => Event::Hangup(delay),
        }
    }
}

struct Stream {
    credit: i64,
    window: i64,
    owed: u32,
    carried: u32,
    wide: bool,
    they_ended: bool,
    we_ended: bool,
}

impl Stream {
    fn new() -> Stream {
        Stream {
            credit: INITIAL_CREDIT,
            window: INITIAL_CREDIT,
            owed: 0,
            carried: 0,
            wide: false,
            they_ended: false,
            we_ended: false,
        }
    }
}

/// One connection.
#[derive(Default)]
pub struct Connection {
    parser: Parser,
    streams: HashMap<u32, Stream>,
    /// How many of them have a wide window.
    wide: usize,
    last_opened: u32,
    last_of_ours: u32,
    greeted: bool,
    /// Frames to be written.
    pub out: WriteQueue,
}

impl Connection {
    /// A connection whose first frame is our HELLO.
    pub fn new(hello: &Value) -> Connection {
        let mut connection = Connection::default();
        connection.send_map(Kind::Hello, 0, hello);
        connection
    }

    /// The server's HELLO has come.
    pub fn greeted(&self) -> bool {
        self.greeted
    }

    /// Opens a stream, whose credit may not be overdrawn. `None` before the server's HELLO, and if too many
    /// are open.
    pub fn open(&mut self, request: &Value) -> Option<u32> {
        if !self.greeted || self.streams.len() >= MAX_STREAMS {
            return None;
        }
        let id = self.last_of_ours.checked_add(2)?;
        self.last_of_ours = id;
        self.streams.insert(id, Stream { credit: STRICT_CREDIT, ..Stream::new() });
        self.send_map(Kind::Open, id, request);
        Some(id)
    }

    /// Takes bytes from the server and adds what they mean to `events`.
    pub fn receive<'a>(&mut self, bytes: &'a [u8], events: &mut Vec<Event<'a>>) -> Result<(), Broken> {
        let mut parser = std::mem::take(&mut self.parser);
        let result = parser.feed(bytes, |parsed| self.handle(parsed, events));
        self.parser = parser;
        result
    }

    fn handle<'a>(&mut self, parsed: Parsed<'_, 'a>, events: &mut Vec<Event<'a>>) -> Result<(), Broken> {
        match parsed {
            Parsed::Frame(header, payload) => self.frame(header, payload, events),
            Parsed::DataBegins(header) => {
                self.require_greeting()?;
                self.charge(header)
            }
            Parsed::DataPiece(header, piece) => {
                if self.streams.get(&header.stream).is_some_and(|stream| !stream.they_ended) {
                    events.push(Event::Data(header.stream, header.channel, Cow::Borrowed(piece)));
                }
                Ok(())
            }
        }
    }

    fn frame(&mut self, header: Header, payload: &[u8], events: &mut Vec<Event<'_>>) -> Result<(), Broken> {
        let id = header.stream;
        if header.kind == Kind::Hello {
            if self.greeted {
                return Err(Broken("a second HELLO"));
            }
            let hello = decode(payload)?;
            if hello.int("protocol") != Some(1) {
                return Err(Broken("another version of the protocol"));
            }
            self.greeted = true;
            events.push(Event::Hello(hello));
            return Ok(());
        }
        self.require_greeting()?;
        match header.kind {
            Kind::Hello | Kind::Data | Kind::Pong => {}
            Kind::Ping => self.out.frame(Kind::Pong, 0, 0, payload),
            Kind::Hangup => {
                let delay = decode(payload)?.int("dialAfterMs").unwrap_or(0);
                events.push(Event::Hangup(delay.clamp(0, 3_600_000) as u64));
            }
            Kind::Open => {
                if id.is_multiple_of(2) || id <= self.last_opened {
                    return Err(Broken("an OPEN with a used or wrong number"));
                }
                let request = decode(payload)?;
                self.last_opened = id;
                if self.streams.len() >= MAX_STREAMS {
                    let failure = Failure::new(
                        "resource_exhausted",
                        format!("More than {MAX_STREAMS} streams are open"),
                    );
                    self.send_map(Kind::Reset, id, &failure.to_value());
                    return Ok(());
                }
                self.streams.insert(id, Stream::new());
                events.push(Event::Open(id, request));
            }
            Kind::Message => {
                let message = decode(payload)?;
                self.charge(header)?;
                if self.streams.get(&id).is_some_and(|stream| !stream.they_ended) {
                    self.taken(id, payload.len());
                    events.push(Event::Message(id, message));
                }
            }
            Kind::Credit => {
                let amount = u32::from_be_bytes(
                    payload.try_into().map_err(|_| Broken("credit that is not four bytes"))?,
                );
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.credit = (stream.credit + i64::from(amount)).min(MAX_CREDIT);
                    events.push(Event::Credit(id, amount));
                }
            }
            Kind::End => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    if !stream.they_ended {
                        stream.they_ended = true;
                        events.push(Event::Ended(id));
                        self.sweep(id);
                    }
                }
            }
            Kind::Reset => {
                decode(payload)?;
                if self.forget(id) {
                    events.push(Event::Reset(id));
                }
            }
        }
        Ok(())
    }

    fn require_greeting(&self) -> Result<(), Broken> {
        if self.greeted { Ok(()) } else { Err(Broken("a frame before HELLO")) }
    }

    /// Counts a frame's bytes against the granted credit.
    fn charge(&mut self, header: Header) -> Result<(), Broken> {
        if let Some(stream) = self.streams.get_mut(&header.stream) {
            if stream.window <= 0 {
                return Err(Broken("credit that was overdrawn"));
            }
            stream.window -= header.length as i64;
        }
        Ok(())
    }

    fn sweep(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(|stream| stream.they_ended && stream.we_ended) {
            self.forget(id);
        }
    }

    /// False if there is no such stream.
    fn forget(&mut self, id: u32) -> bool {
        let stream = self.streams.remove(&id);
        self.wide -= usize::from(stream.as_ref().is_some_and(|stream| stream.wide));
        stream.is_some()
    }

    /// As `taken`, for a task or a connection, which takes bytes fast. True if its window is wide from now
    /// on.
    pub fn taken_fast(&mut self, id: u32, bytes: usize) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        stream.carried = stream.carried.saturating_add(bytes as u32);
        if !stream.wide && stream.carried >= WIDE_AFTER && self.wide < MAX_WIDE {
            self.wide += 1;
            stream.wide = true;
            stream.owed += WIDER;
        }
        let wide = stream.wide;
        self.taken(id, bytes);
        wide
    }

    /// The bytes of a stream were handled: grants credit again when enough has come together.
    pub fn taken(&mut self, id: u32, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.owed = stream.owed.saturating_add(bytes as u32);
        if stream.owed >= if stream.wide { WIDE_GRANT } else { GRANT } && !stream.they_ended {
            let amount = std::mem::take(&mut stream.owed);
            stream.window += i64::from(amount);
            self.out.frame(Kind::Credit, 0, id, &amount.to_be_bytes());
        }
    }

    /// Whether a MESSAGE or DATA may be sent on this stream now.
    pub fn may_send(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.credit > 0 && !stream.we_ended)
    }

    /// The remaining credit.
    pub fn credit(&self, id: u32) -> i64 {
        self.streams.get(&id).map_or(0, |stream| stream.credit)
    }

    /// Sends a MESSAGE and returns the size of its payload. The caller has checked `may_send`.
    pub fn message(&mut self, id: u32, message: &Value) -> usize {
        if !self.is_sending(id) {
            return 0;
        }
        let size = self.send_map(Kind::Message, id, message);
        self.spend(id, size);
        size
    }

    /// Sends DATA of at most one frame.
    pub fn data(&mut self, id: u32, channel: u8, bytes: &[u8]) {
        if self.is_sending(id) {
            self.out.frame(Kind::Data, channel, id, bytes);
            self.spend(id, bytes.len());
        }
    }

    /// Sends frames of a stream that are already encoded, with `payload` bytes of MESSAGE and DATA in them.
    pub fn encoded(&mut self, id: u32, frames: Vec<u8>, payload: usize) {
        if self.is_sending(id) {
            self.out.whole(frames);
            self.spend(id, payload);
        }
    }

    /// We send no more on this stream.
    pub fn end(&mut self, id: u32) {
        if self.is_sending(id) {
            self.out.frame(Kind::End, 0, id, &[]);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.we_ended = true;
            }
            self.sweep(id);
        }
    }

    /// The stream is over, with an error.
    pub fn reset(&mut self, id: u32, failure: &Failure) {
        if self.forget(id) {
            self.send_map(Kind::Reset, id, &failure.to_value());
        }
    }

    fn is_sending(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.we_ended)
    }

    fn spend(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.credit -= bytes as i64;
        }
    }

    fn send_map(&mut self, kind: Kind, id: u32, map: &Value) -> usize {
        let mut payload = Vec::new();
        map.encode(&mut payload);
        self.out.frame(kind, 0, id, &payload);
        payload.len()
    }
}

fn decode(payload: &[u8]) -> Result<Value, Broken> {
    match Value::decode(payload) {
        Ok(value @ Value::Map(_)) => Ok(value),
        _ => Err(Broken("a payload that is not a map")),
    }
}

#[cfg(test)]
mod tests;
