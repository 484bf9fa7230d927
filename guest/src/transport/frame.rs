//! Frames: the header's code, and a parser that takes a byte stream in whatever pieces it comes.
//!
//! The parser holds at most one frame that is not complete. DATA is never held: its pieces are handed
//! through as they come, so that a file or a pipe is fed without waiting for a whole frame.

/// Bytes of a header.
pub const HEADER: usize = 12;
/// The longest payload of any frame.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The longest payload of a DATA frame.
pub const MAX_DATA: usize = 131_072;
/// What each direction of each stream may send at first.
pub const INITIAL_CREDIT: i64 = 262_144;

/// What we may send at first on a stream that we open.
pub const STRICT_CREDIT: i64 = 65_536;

/// The `type` byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// First frame of each side.
    Hello = 1,
    /// Begins a stream.
    Open = 2,
    /// A map on a stream.
    Message = 3,
    /// Bytes on a stream.
    Data = 4,
    /// Room for more bytes.
    Credit = 5,
    /// The sender is done with the stream.
    End = 6,
    /// The stream is over, with an error.
    Reset = 7,
    /// Are you there?
    Ping = 8,
    /// Yes.
    Pong = 9,
    /// Close the connection and dial again later.
    Hangup = 10,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        [Hello, Open, Message, Data, Credit, End, Reset, Ping, Pong, Hangup]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    fn belongs_to_connection(self) -> bool {
        matches!(self, Kind::Hello | Kind::Ping | Kind::Pong | Kind::Hangup)
    }

    fn longest(self) -> usize {
        match self {
            Kind::Data => MAX_DATA,
            Kind::Credit => 4,
            Kind::End => 0,
            Kind::Ping | Kind::Pong => 64,
            _ => MAX_PAYLOAD,
        }
    }
}

/// A header that obeys the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the payload.
    pub length: usize,
    /// What the frame is.
    pub kind: Kind,
    /// Of DATA.
    pub channel: u8,
    /// 0 for the connection itself.
    pub stream: u32,
}

/// The other side broke the rules; the connection has to end.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

impl Header {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&(self.length as u32).to_be_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.channel;
        bytes[8..].copy_from_slice(&self.stream.to_be_bytes());
        bytes
    }

    /// Reads and checks a header.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, Broken> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = Kind::from_byte(bytes[4]).ok_or(Broken("an unknown type of frame"))?;
        let header = Header { length: word(0) as usize, kind, channel: bytes[5], stream: word(8) };
        if header.length > kind.longest() {
            return Err(Broken("a frame that is too long"));
        }
        if kind == Kind::Credit && header.length != 4 {
            return Err(Broken("credit that is not four bytes"));
        }
        if bytes[6] != 0 || bytes[7] != 0 {
            return Err(Broken("filler that is not zero"));
        }
        if header.channel != 0 && kind != Kind::Data {
            return Err(Broken("a channel on a frame that is not DATA"));
        }
        if kind.belongs_to_connection() != (header.stream == 0) {
            return Err(Broken("a frame on a stream where it cannot be"));
        }
        Ok(header)
    }
}

/// What the parser found.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'frame, 'input> {
    /// A whole frame that is not DATA.
    Frame(Header, &'frame [u8]),
    /// The header of a DATA frame; its bytes follow.
    DataBegins(Header),
    /// Some of the bytes of the DATA frame that was begun last.
    DataPiece(Header, &'input [u8]),
}

/// Cuts a byte stream into frames.
#[derive(Default)]
pub struct Parser {
    /// The beginning of a frame whose rest has not come yet: header, then payload.
    partial: Vec<u8>,
    /// The frame in `partial`, once its header is whole.
    header: Option<Header>,
    /// The DATA frame that is being handed through, and how many of its bytes are to come.
    data: Option<(Header, usize)>,
}

impl Parser {
    /// Takes all of `input` and calls `each` for what is in it; stops at the first error.
    pub fn feed<'input>(
        &mut self,
        mut input: &'input [u8],
        mut each: impl FnMut(Parsed<'_, 'input>) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        while !input.is_empty() {
            if let Some((header, left)) = self.data {
                let n = left.min(input.len());
                self.data = if n == left { None } else { Some((header, left - n)) };
                each(Parsed::DataPiece(header, &input[..n]))?;
                input = &input[n..];
                continue;
            }
            let header = match self.header {
                Some(header) => header,
                None => {
                    let Some(bytes) = self.take_header(&mut input) else { return Ok(()) };
                    let header = Header::decode(&bytes)?;
                    if header.kind == Kind::Data {
                        each(Parsed::DataBegins(header))?;
                        self.data = (header.length > 0).then_some((header, header.length));
                        continue;
                    }
                    header
                }
            };
            if self.partial.is_empty() && input.len() >= header.length {
                self.header = None;
                let (payload, rest) = input.split_at(header.length);
                each(Parsed::Frame(header, payload))?;
                input = rest;
                continue;
            }
            self.header = Some(header);
            let n = (header.length - self.partial.len()).min(input.len());
            self.partial.extend_from_slice(&input[..n]);
            input = &input[n..];
            if self.partial.len() == header.length {
                self.header = None;
                let payload = std::mem::take(&mut self.partial);
                each(Parsed::Frame(header, &payload))?;
            }
        }
        Ok(())
    }

    fn take_header(&mut self, input: &mut &[u8]) -> Option<[u8; HEADER]> {
        let mut bytes = [0; HEADER];
        let held = self.partial.len();
        let n = (HEADER - held).min(input.len());
        if held + n < HEADER {
            self.partial.extend_from_slice(input);
            *input = &[];
            return None;
        }
        bytes[..held].copy_from_slice(&self.partial);
        bytes[held..].copy_from_slice(&input[..n]);
        *input = &input[n..];
        self.partial.clear();
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(parser: &mut Parser, input: &[u8], out: &mut Vec<(Header, Vec<u8>)>) -> Result<(), Broken> {
        parser.feed(input, |parsed| {
            match parsed {
                Parsed::Frame(header, payload) => out.push((header, payload.to_vec())),
                Parsed::DataBegins(header) => out.push((header, Vec::new())),
                Parsed::DataPiece(header, piece) => {
                    let last = out.last_mut().expect("a DATA frame was begun");
                    assert_eq!(last.0, header);
                    last.1.extend_from_slice(piece);
                }
            }
            Ok(())
        })
    }

    #[test]
    fn frames_are_the_same_however_the_bytes_are_cut() {
        let mut random = crate::sys::Random::new(7);
        for _ in 0..2_000 {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for _ in 0..random.below(6) {
                let kind = [Kind::Hello, Kind::Open, Kind::Message, Kind::Data, Kind::End, Kind::Reset]
                    [random.below(6) as usize];
                let length = if kind == Kind::End { 0 } else { random.below(300) as usize };
                let payload: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
                let stream = if kind == Kind::Hello { 0 } else { 1 + random.below(1000) as u32 };
                let header = Header { length, kind, channel: if kind == Kind::Data { 3 } else { 0 }, stream };
                bytes.extend_from_slice(&header.encode());
                bytes.extend_from_slice(&payload);
                expected.push((header, payload));
            }
            let mut parser = Parser::default();
            let mut got = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let n = 1 + random.below(rest.len() as u64) as usize;
                collect(&mut parser, &rest[..n], &mut got).unwrap();
                rest = &rest[n..];
            }
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn headers_that_break_the_rules_are_refused() {
        let good = Header { length: 5, kind: Kind::Message, channel: 0, stream: 3 }.encode();
        assert!(Header::decode(&good).is_ok());
        for (at, byte) in [(4, 0), (4, 11), (5, 1), (6, 1), (7, 1), (0, 1), (11, 0), (4, 5), (4, 6), (4, 1)] {
            let mut bad = good;
            bad[at] = byte;
            assert!(Header::decode(&bad).is_err(), "byte {at} = {byte}");
        }
        let long = Header { length: MAX_DATA + 1, kind: Kind::Data, channel: 1, stream: 1 };
        assert!(Header::decode(&long.encode()).is_err());
    }

    #[test]
    fn random_bytes_in_random_pieces_never_panic_and_hold_little() {
        let mut random = crate::sys::Random::new(99);
        for _ in 0..200_000 {
            let mut parser = Parser::default();
            for _ in 0..random.below(6) {
                let piece: Vec<u8> = (0..random.below(40))
                    .map(|_| if random.below(2) == 0 { 0 } else { random.below(12) as u8 })
                    .collect();
                if parser.feed(&piece, |_| Ok(())).is_err() {
                    break;
                }
                assert!(parser.partial.len() <= MAX_PAYLOAD);
            }
        }
    }
}
