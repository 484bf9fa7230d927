//! The 512 bytes that begin an entry of a tar archive, and the pax records that say what they cannot.

/// Everything in an archive comes in blocks of this size.
pub const BLOCK: usize = 512;

/// One block.
pub type Block = [u8; BLOCK];

const NAME: (usize, usize) = (0, 100);
const MODE: (usize, usize) = (100, 8);
const UID: (usize, usize) = (108, 8);
const GID: (usize, usize) = (116, 8);
const SIZE: (usize, usize) = (124, 12);
const MTIME: (usize, usize) = (136, 12);
const CHECKSUM: (usize, usize) = (148, 8);
const KIND: usize = 156;
const LINK: (usize, usize) = (157, 100);
const MAGIC: (usize, usize) = (257, 8);
const PREFIX: (usize, usize) = (345, 155);

/// What a header says about an entry, with its pax records already applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `0` file, `1` link, `2` symlink, `5` directory, `6` fifo and so on.
    pub kind: u8,
    /// As it is in the archive, unchecked: the caller checks it.
    pub name: Vec<u8>,
    /// Of a link or symlink.
    pub link: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content, never negative.
    pub size: i64,
    /// Last modification, seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Extended attributes, by their whole names.
    pub attributes: Vec<Attribute>,
    /// How long a file with holes is. Its `size` bytes are then a map of what is in the archive, and that.
    pub sparse: Option<i64>,
}

/// Name and value.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// What the name of an extended attribute has before it in a record.
pub const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

/// Why a header is none.
#[derive(Debug, PartialEq, Eq)]
pub struct BadHeader(pub &'static str);

impl Header {
    /// Appends a header block, after a pax block where the plain fields are too small.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut records = Vec::new();
        if let Some(real) = self.sparse {
            // The name in the header itself is for programs that do not know of holes.
            record(&mut records, b"GNU.sparse.major", b"1");
            record(&mut records, b"GNU.sparse.minor", b"0");
            record(&mut records, b"GNU.sparse.name", &self.name);
            record(&mut records, b"GNU.sparse.realsize", real.to_string().as_bytes());
        } else if !plain(&self.name) {
            if std::str::from_utf8(&self.name).is_err() {
                record(&mut records, b"hdrcharset", b"BINARY");
            }
            record(&mut records, b"path", &self.name);
        }
        if !plain(&self.link) {
            record(&mut records, b"linkpath", &self.link);
        }
        for (key, value, largest) in [
            ("size", self.size, 0o77777777777),
            ("uid", i64::from(self.uid), 0o7777777),
            ("gid", i64::from(self.gid), 0o7777777),
        ] {
            if !(0..=largest).contains(&value) {
                record(&mut records, key.as_bytes(), value.to_string().as_bytes());
            }
        }
        if self.mtime.1 != 0 || !(0..=0o77777777777).contains(&self.mtime.0) {
            record(&mut records, b"mtime", time_text(self.mtime).as_bytes());
        }
        for (name, value) in &self.attributes {
            record(&mut records, &[ATTRIBUTE, &escaped(name)].concat(), value);
        }
        if !records.is_empty() {
            let size = records.len() as i64;
            let pax = Header { kind: b'x', name: b"pax".to_vec(), mode: 0o644, size, ..Header::default() };
            out.extend_from_slice(&pax.block());
            out.extend_from_slice(&records);
            out.resize(out.len() + padding(size), 0);
        }
        out.extend_from_slice(&self.block());
    }

    fn block(&self) -> Block {
        let mut block = [0; BLOCK];
        if self.sparse.is_some() {
            put(&mut block, NAME, &[b"GNUSparseFile.0/", &self.name[..]].concat());
        } else {
            put(&mut block, NAME, &self.name);
        }
        put(&mut block, LINK, &self.link);
        put_octal(&mut block, MODE, i64::from(self.mode));
        put_octal(&mut block, UID, i64::from(self.uid));
        put_octal(&mut block, GID, i64::from(self.gid));
        put_octal(&mut block, SIZE, self.size);
        put_octal(&mut block, MTIME, self.mtime.0);
        block[KIND] = self.kind;
        put(&mut block, MAGIC, b"ustar\x0000");
        let sum = checksums(&block).0;
        put(&mut block, CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
        block
    }

    /// Reads a header block that is not all zeros.
    pub fn decode(block: &Block) -> Result<Header, BadHeader> {
        let sum = number(field(block, CHECKSUM)).ok_or(BadHeader("a checksum that is not a number"))?;
        let (unsigned, signed) = checksums(block);
        // Some old programs summed signed bytes.
        if sum != unsigned && sum != signed {
            return Err(BadHeader("a wrong checksum"));
        }
        let size = number(field(block, SIZE))
            .filter(|size| *size >= 0)
            .ok_or(BadHeader("a size that is not a number"))?;
        let mut name = text(field(block, NAME)).to_vec();
        // GNU's own format has other things where ustar has the first part of a long name.
        let prefix = text(field(block, PREFIX));
        if field(block, MAGIC) == b"ustar\x0000" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let id = |place| number(field(block, place)).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        Ok(Header {
            kind: if block[KIND] == 0 { b'0' } else { block[KIND] },
            name,
            link: text(field(block, LINK)).to_vec(),
            mode: number(field(block, MODE)).map_or(0o644, |mode| (mode & 0o7777) as u32),
            uid: id(UID),
            gid: id(GID),
            size,
            mtime: (number(field(block, MTIME)).unwrap_or(0), 0),
            ..Header::default()
        })
    }
}

/// How many bytes fill up the last block of `size` bytes of content.
pub fn padding(size: i64) -> usize {
    (BLOCK - (size as u64 % BLOCK as u64) as usize) % BLOCK
}

/// A key and its value.
pub type Record<'a> = (&'a [u8], &'a [u8]);

/// The records of a pax header: `length key=value newline`, again and again.
pub fn records(mut bytes: &[u8]) -> Result<Vec<Record<'_>>, BadHeader> {
    const BAD: BadHeader = BadHeader("a pax record that makes no sense");
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or(BAD)?;
        let length = decimal(&bytes[..space]).and_then(|length| usize::try_from(length).ok()).ok_or(BAD)?;
        let record = bytes.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or(BAD)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
        records.push((&record[..equals], &record[equals + 1..]));
        bytes = &bytes[length..];
    }
    Ok(records)
}

/// Digits only.
pub fn decimal(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A pax time: seconds with an optional sign and fraction.
pub fn time(value: &[u8]) -> Option<(i64, i64)> {
    let (negative, value) = value.strip_prefix(b"-").map_or((false, value), |rest| (true, rest));
    let point = value.iter().position(|byte| *byte == b'.').unwrap_or(value.len());
    let seconds = decimal(&value[..point])?;
    let fraction = value.get(point + 1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nanoseconds =
        (0..9).fold(0, |sum, n| sum * 10 + i64::from(fraction.get(n).map_or(0, |digit| digit - b'0')));
    match (negative, nanoseconds) {
        (false, _) => Some((seconds, nanoseconds)),
        (true, 0) => Some((-seconds, 0)),
        (true, _) => Some(((-seconds).checked_sub(1)?, 1_000_000_000 - nanoseconds)),
    }
}

fn time_text((seconds, nanoseconds): (i64, i64)) -> String {
    match nanoseconds {
        0 => seconds.to_string(),
        _ if seconds >= 0 => format!("{seconds}.{nanoseconds:09}"),
        _ => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
    }
}

/// A key ends at the first `=`, so that one in a name is written as other programs do it.
fn escaped(name: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'%' => b"%25".to_vec(),
        b'=' => b"%3D".to_vec(),
        byte => vec![*byte],
    };
    name.iter().flat_map(escape).collect()
}

/// Undoes `escaped`.
pub fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'%', b'2', b'5', after @ ..] => (&b'%', after),
            [b'%', b'3', b'D', after @ ..] => (&b'=', after),
            _ => (byte, after),
        };
        bytes.push(*byte);
        rest = after;
    }
    bytes
}

/// Whether a name says all in the header itself. Bytes that are no text do so too where they fit: that is how
/// other programs write them, while only some know of pax's way.
fn plain(name: &[u8]) -> bool {
    name.len() <= NAME.1 && (name.is_ascii() || std::str::from_utf8(name).is_err())
}

/// The length at the start of a record counts itself.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() > length {
        length += 1;
    }
    out.extend_from_slice(format!("{length} ").as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn field(block: &Block, (start, length): (usize, usize)) -> &[u8] {
    &block[start..start + length]
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn put(block: &mut Block, (start, length): (usize, usize), bytes: &[u8]) {
    let length = bytes.len().min(length);
    block[start..start + length].copy_from_slice(&bytes[..length]);
}

/// A number that does not fit is in a pax record, which wins.
fn put_octal(block: &mut Block, place: (usize, usize), value: i64) {
    let digits = place.1 - 1;
    let largest = (1i64 << (3 * digits)) - 1;
    let value = if (0..=largest).contains(&value) { value } else { 0 };
    put(block, place, format!("{value:0digits$o}").as_bytes());
}

/// Octal digits between spaces and NULs, or GNU's big-endian binary with the top bit set.
fn number(field: &[u8]) -> Option<i64> {
    match field.first() {
        Some(0x80) => {
            field[1..].iter().try_fold(0i64, |sum, byte| sum.checked_mul(256)?.checked_add(i64::from(*byte)))
        }
        Some(0xff) => {
            field[1..].iter().try_fold(-1i64, |sum, byte| sum.checked_mul(256)?.checked_add(i64::from(*byte)))
        }
        Some(0x81..) => None,
        _ => {
            let blank = |byte: &u8| *byte == b' ' || *byte == 0;
            let start = field.iter().position(|byte| !blank(byte)).unwrap_or(field.len());
            let digits = &field[start..];
            let digits = &digits[..digits.iter().position(blank).unwrap_or(digits.len())];
            digits.iter().try_fold(0i64, |sum, digit| match digit {
                b'0'..=b'7' => sum.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
                _ => None,
            })
        }
    }
}

/// The sum of all bytes, those of the checksum itself counted as spaces; unsigned and signed.
fn checksums(block: &Block) -> (i64, i64) {
    let own = CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1;
    let bytes = block.iter().enumerate().map(|(at, byte)| if own.contains(&at) { b' ' } else { *byte });
    bytes
        .fold((0, 0), |(unsigned, signed), byte| (unsigned + i64::from(byte), signed + i64::from(byte as i8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_a_round_trip() {
        let header = Header {
            kind: b'2',
            name: b"a/b".to_vec(),
            link: b"c".to_vec(),
            mode: 0o4755,
            uid: 7,
            gid: 8,
            size: 9,
            mtime: (10, 0),
            ..Header::default()
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        assert_eq!(bytes.len(), BLOCK);
        let mut block: Block = bytes.try_into().expect("one block");
        assert_eq!(Header::decode(&block), Ok(header));
        block[0] ^= 1;
        assert_eq!(Header::decode(&block), Err(BadHeader("a wrong checksum")));
    }

    #[test]
    fn numbers_are_read_in_every_form_and_never_overflow() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0"), Some(0));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(2 << 32));
        assert_eq!(number(b"\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(number(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"\xff\0\0\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(number(b"09"), None);
    }

    #[test]
    fn record_lengths_count_themselves() {
        for length in 0..1200 {
            let value = vec![b'v'; length];
            let mut bytes = Vec::new();
            record(&mut bytes, b"path", &value);
            assert_eq!(records(&bytes), Ok(vec![(&b"path"[..], &value[..])]), "{length}");
        }
        for bytes in [
            &b"5 a=b"[..],
            b"99 a=b\n",
            b"0 a=b\n",
            b"2 \n",
            b" a=b\n",
            b"-6 a=b\n",
            b"99999999999999999999 a=b\n",
            b"6 aab\n",
        ] {
            assert!(records(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn times_have_fractions_and_signs() {
        assert_eq!(time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"7"), Some((7, 0)));
        assert_eq!(time(b"7.1234567899"), Some((7, 123_456_789)));
        for exact in [(12, 5), (-2, 750_000_000), (-1, 1), (0, 999_999_999), (-7, 0), (i64::MIN + 1, 1)] {
            assert_eq!(time(time_text(exact).as_bytes()), Some(exact));
        }
        for bad in [&b""[..], b".", b"x", b"1.x", b"--1", b"99999999999999999999"] {
            assert_eq!(time(bad), None);
        }
    }
}
