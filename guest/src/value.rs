//! Values of the guest protocol and their CBOR form.
//!
//! Only the part of CBOR that the protocol allows is read; anything else is an error and never a
//! guess. Decoding is bounded by the frame that holds the value: lengths are checked against the
//! bytes that are really there before anything is reserved.

/// One CBOR value of the allowed kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer. The protocol's 64-bit range is wider than `i64` on both ends; what lies beyond is refused.
    Int(i64),
    /// A byte string.
    Bytes(Vec<u8>),
    /// A text string.
    Text(String),
    /// An array.
    Array(Vec<Value>),
    /// A map with text keys, in the order in which they came.
    Map(Vec<(String, Value)>),
}

/// Why bytes are not a value.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

const MAX_DEPTH: u32 = 8;

impl Value {
    /// Reads exactly one value that fills all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Value, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let value = reader.value(0)?;
        if reader.at != bytes.len() {
            return Err(Malformed("bytes after the value"));
        }
        Ok(value)
    }

    /// Appends the CBOR form of the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.push(0xf6),
            Value::Bool(false) => out.push(0xf4),
            Value::Bool(true) => out.push(0xf5),
            Value::Int(n) if *n >= 0 => head(out, 0, *n as u64),
            Value::Int(n) => head(out, 1, !(*n) as u64),
            Value::Bytes(bytes) => {
                head(out, 2, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            Value::Text(text) => {
                head(out, 3, text.len() as u64);
                out.extend_from_slice(text.as_bytes());
            }
            Value::Array(items) => {
                head(out, 4, items.len() as u64);
                items.iter().for_each(|item| item.encode(out));
            }
            Value::Map(entries) => {
                head(out, 5, entries.len() as u64);
                for (key, value) in entries {
                    head(out, 3, key.len() as u64);
                    out.extend_from_slice(key.as_bytes());
                    value.encode(out);
                }
            }
        }
    }

    /// Builds a map.
    pub fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Text where the bytes are UTF-8, a byte string where they are not: file names and arguments.
    pub fn name(bytes: &[u8]) -> Value {
        match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Bytes(bytes.to_owned()),
        }
    }

    /// The value under `key`, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text under `key`.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The text or byte string under `key`, as bytes.
    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.get(key).and_then(Value::as_bytes)
    }

    /// The integer under `key`.
    pub fn int(&self, key: &str) -> Option<i64> {
        match self.get(key) {
            Some(Value::Int(n)) => Some(*n),
            _ => None,
        }
    }

    /// The boolean under `key`; absent is `false`.
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Value::Bool(true)))
    }

    /// Text or byte string, as bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Text(text) => Some(text.as_bytes()),
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Int(n)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Bool(flag)
    }
}

fn head(out: &mut Vec<u8>, major: u8, n: u64) {
    let major = major << 5;
    match n {
        0..=23 => out.push(major | n as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, n as u8]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&(n as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&n.to_be_bytes());
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, n: usize) -> Result<&[u8], Malformed> {
        if n > self.bytes.len() - self.at {
            return Err(Malformed("the value ends too early"));
        }
        self.at += n;
        Ok(&self.bytes[self.at - n..self.at])
    }

    fn head(&mut self) -> Result<(u8, u64), Malformed> {
        let first = self.take(1)?[0];
        let n = match first & 0x1f {
            n @ 0..=23 => u64::from(n),
            24 => u64::from(self.take(1)?[0]),
            25 => u64::from(u16::from_be_bytes(self.take(2)?.try_into().expect("two bytes"))),
            26 => u64::from(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes"))),
            27 => u64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes")),
            _ => return Err(Malformed("an indefinite or reserved length")),
        };
        Ok((first >> 5, n))
    }

    /// Each item takes at least one byte, so a count beyond what is left is a lie.
    fn count(&self, n: u64) -> Result<usize, Malformed> {
        let left = (self.bytes.len() - self.at) as u64;
        if n > left { Err(Malformed("a length beyond the end")) } else { Ok(n as usize) }
    }

    fn text(&mut self, n: u64) -> Result<String, Malformed> {
        let n = self.count(n)?;
        String::from_utf8(self.take(n)?.to_vec()).map_err(|_| Malformed("text that is not UTF-8"))
    }

    fn value(&mut self, depth: u32) -> Result<Value, Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed("nested too deeply"));
        }
        let (major, n) = self.head()?;
        match major {
            0 => i64::try_from(n).map(Value::Int).map_err(|_| Malformed("an integer beyond 63 bits")),
            1 => i64::try_from(n).map(|n| Value::Int(!n)).map_err(|_| Malformed("an integer beyond 63 bits")),
            2 => {
                let n = self.count(n)?;
                Ok(Value::Bytes(self.take(n)?.to_vec()))
            }
            3 => self.text(n).map(Value::Text),
            4 => {
                let n = self.count(n)?;
                (0..n).map(|_| self.value(depth + 1)).collect::<Result<_, _>>().map(Value::Array)
            }
            5 => {
                let n = self.count(n)?;
                let mut entries = Vec::new();
                for _ in 0..n {
                    let (major, length) = self.head()?;
                    if major != 3 {
                        return Err(Malformed("a key that is not text"));
                    }
                    let key = self.text(length)?;
                    entries.push((key, self.value(depth + 1)?));
                }
                Ok(Value::Map(entries))
            }
            7 => match n {
                20 => Ok(Value::Bool(false)),
                21 => Ok(Value::Bool(true)),
                22 => Ok(Value::Null),
                _ => Err(Malformed("a float or an unknown simple value")),
            },
            _ => Err(Malformed("a tag")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(value: Value) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(Value::decode(&bytes), Ok(value));
    }

    #[test]
    fn values_survive_a_round_trip() {
        for n in [0, 23, 24, 255, 256, 65535, 65536, 1 << 40, i64::MAX, -1, -24, -25, i64::MIN] {
            round_trip(Value::Int(n));
        }
        round_trip(Value::map([
            ("a", Value::Null),
            ("b", true.into()),
            ("c", Value::Bytes(vec![0, 255])),
            ("d", Value::Array(vec!["ü".into(), Value::Map(vec![])])),
        ]));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused_without_reserving_it() {
        assert!(Value::decode(&[0x9b, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(Value::decode(&[0x5a, 0xff, 0xff, 0xff, 0xff]).is_err());
    }

    #[test]
    fn what_the_protocol_does_not_allow_is_refused() {
        for bytes in [
            &[0x9f, 0xff][..],
            &[0xc0, 0x00],
            &[0xf9, 0, 0],
            &[0xa1, 0x01, 0x02],
            &[0x01, 0x02],
            &[],
            &[0x62, 0xff, 0xff],
            &[0x81; 40],
        ] {
            assert!(Value::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..200_000 {
            let mut bytes = [0u8; 24];
            for byte in &mut bytes {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = (seed >> 56) as u8;
            }
            let _ = Value::decode(&bytes[..(seed >> 32) as usize % 25]);
        }
    }
}
