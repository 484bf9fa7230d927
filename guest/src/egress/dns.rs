//! DNS messages: reads one question, writes one answer. Nothing here does input or output.
//!
//! The bytes come from any process of the sandbox. What is not one plain question is refused with the code
//! that says so, or, if not even an answer can be addressed, dropped.

use std::net::Ipv4Addr;

/// The longest message that is read. A question of 255 bytes with every usual option is far below.
pub const MAX_MESSAGE: usize = 1232;
/// How long a program may keep an answer, in seconds. The address is mapped to the name for longer than that.
pub const TTL: u32 = 30;

const HEADER: usize = 12;
const MAX_LABEL: usize = 63;
/// Of a name on the wire, with the length of each label and the last zero.
const MAX_WIRE_NAME: usize = 255;
const CLASS_IN: u16 = 1;
const CLASS_ANY: u16 = 255;
const TYPE_OPT: u16 = 41;

/// The type of an address record.
pub const TYPE_A: u16 = 1;
/// The type of a pointer from an address to a name.
pub const TYPE_PTR: u16 = 12;

/// What an answer says beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// There is an answer, which may have no records.
    Fine = 0,
    /// The question cannot be read.
    Malformed = 1,
    /// It cannot be answered now.
    Failed = 2,
    /// There is no such name.
    Absent = 3,
    /// Another kind of request than a question.
    Unknown = 4,
    /// Too many questions.
    Refused = 5,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    id: u16,
    recursion: bool,
    extended: bool,
    /// As it came, so that a client that varies the case finds its own spelling in the answer.
    wire: Vec<u8>,
    /// In lower case, without a dot at the end. `None` if it has bytes that no host name has.
    pub name: Option<String>,
    /// The type of the records that are asked for.
    pub kind: u16,
}

/// What an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Nothing.
    None,
    /// An address.
    Address(Ipv4Addr),
    /// A name.
    Name(&'a str),
}

/// Why there is no question to answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Bad {
    /// No question to answer: too short, or an answer itself.
    Drop,
    /// The answer is this whole message.
    Answer(Vec<u8>),
}

/// Reads a question.
pub fn parse(message: &[u8]) -> Result<Question, Bad> {
    if message.len() < HEADER || message.len() > MAX_MESSAGE || message[2] & 0x80 != 0 {
        return Err(Bad::Drop);
    }
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let refuse = |code| Bad::Answer(refusal(word(0), message[2], code));
    if message[2] & 0x78 != 0 {
        return Err(refuse(Code::Unknown));
    }
    let [questions, answers, authorities, additional] = [4, 6, 8, 10].map(word);
    if questions != 1 || answers != 0 || authorities != 0 || additional > 2 {
        return Err(refuse(Code::Malformed));
    }
    let Some((name, at)) = read_name(&message[HEADER..]) else { return Err(refuse(Code::Malformed)) };
    let at = HEADER + at;
    if message.len() < at + 4 {
        return Err(refuse(Code::Malformed));
    }
    let class = word(at + 2);
    let question = Question {
        id: word(0),
        recursion: message[2] & 1 != 0,
        extended: additional > 0 && is_option(&message[at + 4..]),
        wire: message[HEADER..at + 4].to_vec(),
        name,
        kind: word(at),
    };
    if class != CLASS_IN && class != CLASS_ANY {
        return Err(Bad::Answer(question.answer(Code::Refused, Record::None)));
    }
    Ok(question)
}

/// A name without compression, which a question has no use for: its text, and how many bytes it took.
fn read_name(bytes: &[u8]) -> Option<(Option<String>, usize)> {
    let mut text = String::new();
    let mut plain = true;
    let mut at = 0;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((plain.then_some(text), at));
        }
        if length > MAX_LABEL || at + length + 1 > MAX_WIRE_NAME {
            return None;
        }
        let label = bytes.get(at..at + length)?;
        at += length;
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label {
            if byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'_' {
                text.push(char::from(byte.to_ascii_lowercase()));
            } else {
                plain = false;
            }
        }
    }
}

/// The record by which a client says that it knows longer answers: the root's name, and its type.
fn is_option(rest: &[u8]) -> bool {
    matches!(rest, [0, high, low, ..] if u16::from_be_bytes([*high, *low]) == TYPE_OPT)
}

fn refusal(id: u16, flags: u8, code: Code) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend([0x80 | (flags & 0x79), 0x80 | code as u8]);
    out.resize(HEADER, 0);
    out
}

impl Question {
    /// The whole answer.
    pub fn answer(&self, code: Code, record: Record<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.wire.len() + 300);
        out.extend(self.id.to_be_bytes());
        // Authoritative. Recursion is available, and desired if the client said so.
        out.extend([0x84 | u8::from(self.recursion), 0x80 | code as u8]);
        let records = u16::from(record != Record::None);
        for count in [1, records, 0, u16::from(self.extended)] {
            out.extend(count.to_be_bytes());
        }
        out.extend_from_slice(&self.wire);
        match record {
            Record::None => {}
            Record::Address(address) => {
                record_head(&mut out, TYPE_A, 4);
                out.extend(address.octets());
            }
            Record::Name(name) => {
                let wire = wire_name(name);
                record_head(&mut out, TYPE_PTR, wire.len() as u16);
                out.extend(wire);
            }
        }
        if self.extended {
            out.push(0);
            out.extend(TYPE_OPT.to_be_bytes());
            out.extend((MAX_MESSAGE as u16).to_be_bytes());
            out.extend([0; 6]);
        }
        out
    }

    /// The IPv4 address whose name is asked for.
    pub fn reversed(&self) -> Option<Ipv4Addr> {
        let octets = self.name.as_deref()?.strip_suffix(".in-addr.arpa")?;
        let mut parts = octets.split('.').map(|part| part.parse::<u8>().ok());
        let mut next = || parts.next().flatten();
        let (d, c, b, a) = (next()?, next()?, next()?, next()?);
        parts.next().is_none().then_some(Ipv4Addr::new(a, b, c, d))
    }
}

/// The name is that of the question, at its place in the message.
fn record_head(out: &mut Vec<u8>, kind: u16, length: u16) {
    out.extend([0xc0, HEADER as u8]);
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.extend(TTL.to_be_bytes());
    out.extend(length.to_be_bytes());
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        out.push(label.len().min(MAX_LABEL) as u8);
        out.extend(label.bytes().take(MAX_LABEL));
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Random;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 0x01, 0x20, 0, 1, 0, 0, 0, 0, 0, 0];
        out.extend(wire_name(name));
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out
    }

    fn code_of(bad: Result<Question, Bad>) -> Option<u8> {
        match bad {
            Err(Bad::Answer(answer)) => Some(answer[3] & 0xf),
            _ => None,
        }
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let parsed = parse(&question("ExAmple.org", TYPE_A)).unwrap();
        assert_eq!(parsed.name.as_deref(), Some("example.org"));
        assert_eq!(parsed.kind, TYPE_A);
        let answer = parsed.answer(Code::Fine, Record::Address(Ipv4Addr::new(198, 18, 0, 9)));
        assert_eq!(&answer[..12], &[0x12, 0x34, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(&answer[12..29], &question("ExAmple.org", TYPE_A)[12..], "the spelling of the client");
        assert_eq!(&answer[29..], &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 198, 18, 0, 9]);
    }

    #[test]
    fn options_are_answered_with_options() {
        let mut message = question("a.b", TYPE_A);
        message[11] = 1;
        message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        let answer = parse(&message).unwrap().answer(Code::Absent, Record::None);
        assert_eq!(&answer[10..12], &[0, 1]);
        assert_eq!(&answer[answer.len() - 11..], &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn addresses_are_turned_around() {
        let parsed = parse(&question("9.0.18.198.in-addr.arpa", TYPE_PTR)).unwrap();
        assert_eq!(parsed.reversed(), Some(Ipv4Addr::new(198, 18, 0, 9)));
        let answer = parsed.answer(Code::Fine, Record::Name("example.org"));
        assert!(answer.ends_with(b"\x07example\x03org\x00"));
        for name in ["1.2.3.in-addr.arpa", "1.2.3.4.5.in-addr.arpa", "a.2.3.4.in-addr.arpa", "x.org"] {
            assert_eq!(parse(&question(name, TYPE_PTR)).unwrap().reversed(), None);
        }
    }

    #[test]
    fn what_is_no_plain_question_is_refused() {
        assert_eq!(parse(&[]), Err(Bad::Drop));
        assert_eq!(parse(&[0; 11]), Err(Bad::Drop));
        assert_eq!(parse(&[0; MAX_MESSAGE + 1]), Err(Bad::Drop));
        let mut answer = question("a.b", TYPE_A);
        answer[2] |= 0x80;
        assert_eq!(parse(&answer), Err(Bad::Drop));
        let mut update = question("a.b", TYPE_A);
        update[2] |= 5 << 3;
        assert_eq!(code_of(parse(&update)), Some(Code::Unknown as u8));
        for at in [5, 7, 9] {
            let mut counts = question("a.b", TYPE_A);
            counts[at] = 2;
            assert_eq!(code_of(parse(&counts)), Some(Code::Malformed as u8));
        }
        let mut chaos = question("a.b", TYPE_A);
        let last = chaos.len() - 1;
        chaos[last] = 3;
        assert_eq!(code_of(parse(&chaos)), Some(Code::Refused as u8));
        let whole = question("a.b", TYPE_A);
        for length in 12..whole.len() {
            assert_eq!(code_of(parse(&whole[..length])), Some(Code::Malformed as u8));
        }
    }

    #[test]
    fn pointers_and_long_names_are_refused() {
        let mut pointer = question("a.b", TYPE_A);
        pointer.splice(12..17, [0xc0, 12]);
        assert_eq!(code_of(parse(&pointer)), Some(Code::Malformed as u8));
        let labels = |count: usize, length: usize| vec!["x".repeat(length); count].join(".");
        assert!(parse(&question(&labels(4, 62), TYPE_A)).is_ok());
        assert_eq!(code_of(parse(&question(&labels(4, 63), TYPE_A))), Some(Code::Malformed as u8));
        let longest = parse(&question(&labels(127, 1), TYPE_A)).unwrap();
        assert_eq!(longest.name.map(|name| name.len()), Some(253));
        assert_eq!(code_of(parse(&question(&labels(128, 1), TYPE_A))), Some(Code::Malformed as u8));
    }

    #[test]
    fn bytes_that_no_host_name_has_are_no_name() {
        for label in ["a b", "a\0b", "é", "*", "a/b"] {
            assert_eq!(parse(&question(label, TYPE_A)).unwrap().name, None, "{label:?}");
        }
        // A dot within a label would become another name.
        let mut dotted = question("aXb", TYPE_A);
        dotted[14] = b'.';
        assert_eq!(parse(&dotted).unwrap().name, None);
        assert_eq!(parse(&question("_srv.a-b", TYPE_A)).unwrap().name.as_deref(), Some("_srv.a-b"));
    }

    #[test]
    fn random_messages_never_panic_and_names_are_names() {
        let mut random = Random::new(7);
        let template = question("some.name.example", TYPE_A);
        for round in 0..300_000 {
            let mut message = if round % 2 == 0 {
                (0..random.below(80)).map(|_| random.below(256) as u8).collect()
            } else {
                template.clone()
            };
            for _ in 0..random.below(4) {
                let at = random.below(message.len() as u64) as usize;
                if let Some(byte) = message.get_mut(at) {
                    *byte = random.below(256) as u8;
                }
            }
            if let Ok(parsed) = parse(&message) {
                if let Some(name) = &parsed.name {
                    assert!(name.len() <= 253 && !name.contains("..") && !name.starts_with('.'));
                    assert_eq!(*name, name.to_ascii_lowercase());
                    let again = parse(&question(name, parsed.kind)).unwrap();
                    assert!(name.is_empty() || again.name.as_ref() == Some(name));
                }
                assert!(parsed.answer(Code::Fine, Record::Name("a.b")).len() <= 512 + 11);
            }
        }
    }
}
