//! Files with holes: what of them is data, the map that says so in an archive, and writing them.
//!
//! The map is GNU's version 1.0: numbers with a newline after each, first how many segments there are, then
//! where each begins and how long it is, filled up to a whole block.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::task::Stopped;

use super::sys::{self, invalid};
use super::tar_header::{BLOCK, Block};

/// Where data begins and how long it is.
pub type Segment = (i64, i64);

/// A file in more pieces is taken to have data from there to its end, and a map of more is refused.
const MOST_SEGMENTS: usize = 65_536;
/// What file systems make holes of.
const HOLE: usize = 4096;

/// What of a file of `size` bytes is data. A file system that knows no holes says all of it.
pub fn segments(file: &impl AsRawFd, size: i64) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let Some(start) = seek(file, at, libc::SEEK_DATA)?.filter(|start| *start < size) else { break };
        let end = if segments.len() + 2 >= MOST_SEGMENTS {
            size
        } else {
            seek(file, start, libc::SEEK_HOLE)?.unwrap_or(size).min(size)
        };
        segments.push((start, end - start));
        at = end;
    }
    Ok(segments)
}

fn seek(file: &impl AsRawFd, from: i64, whence: i32) -> io::Result<Option<i64>> {
    // SAFETY: no memory is passed.
    match unsafe { libc::lseek(file.as_raw_fd(), from, whence) } {
        -1 => match io::Error::last_os_error() {
            error if sys::is(&error, libc::ENXIO) => Ok(None),
            error => Err(error),
        },
        at => Ok(Some(at)),
    }
}

/// The map as it is written. One more segment, of no length, tells where the file ends.
pub fn map(segments: &[Segment], size: i64) -> Vec<u8> {
    let mut text = format!("{}\n", segments.len() + 1);
    for (start, length) in segments.iter().chain([&(size, 0)]) {
        text.push_str(&format!("{start}\n{length}\n"));
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// Reads a map block by block.
#[derive(Default)]
pub struct MapReader {
    numbers: Vec<i64>,
    number: Option<i64>,
}

impl MapReader {
    fn count(&self) -> Option<usize> {
        self.numbers.first().and_then(|count| usize::try_from(*count).ok())
    }

    /// Whether all numbers were read.
    pub fn complete(&self) -> bool {
        self.count().is_some_and(|count| self.numbers.len() == 1 + 2 * count)
    }

    /// The next block of it.
    pub fn take(&mut self, block: &Block) -> Result<(), Stopped> {
        for byte in block {
            if self.complete() {
                break;
            }
            match byte {
                b'0'..=b'9' => {
                    let number = self
                        .number
                        .unwrap_or(0)
                        .checked_mul(10)
                        .and_then(|number| number.checked_add(i64::from(byte - b'0')));
                    self.number = Some(number.ok_or_else(nonsense)?);
                }
                b'\n' => self.numbers.push(self.number.take().ok_or_else(nonsense)?),
                _ => return Err(nonsense()),
            }
            if self.count().is_some_and(|count| count > MOST_SEGMENTS) {
                return Err(invalid(format!(
                    "The archive has a sparse file in more than {MOST_SEGMENTS} pieces"
                )));
            }
        }
        Ok(())
    }

    /// The segments: in order, apart, within `real` bytes, and with `content` bytes in all.
    pub fn segments(&self, content: i64, real: i64) -> Result<Vec<Segment>, Stopped> {
        let pairs = self.numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let (mut end, mut total) = (0i64, 0i64);
        for (start, length) in pairs.clone() {
            let fits = start >= end && start.checked_add(length).is_some_and(|end| end <= real);
            if !fits {
                return Err(nonsense());
            }
            end = start + length;
            total += length;
        }
        if total == content { Ok(pairs.collect()) } else { Err(nonsense()) }
    }
}

fn nonsense() -> Stopped {
    invalid("The archive has a sparse file whose map makes no sense")
}

/// Writes content that comes in pieces to where it belongs in a new file.
pub struct SparseWriter<'a> {
    file: &'a File,
    segments: std::vec::IntoIter<Segment>,
    at: i64,
    left: i64,
    /// Whether blocks of zeros become holes too.
    holes: bool,
}

impl<'a> SparseWriter<'a> {
    /// For content of these segments.
    pub fn new(file: &'a File, segments: Vec<Segment>, holes: bool) -> SparseWriter<'a> {
        SparseWriter { file, segments: segments.into_iter(), at: 0, left: 0, holes }
    }

    /// The next piece.
    pub fn write(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            while self.left == 0 {
                (self.at, self.left) = self.segments.next().ok_or_else(|| sys::errno(libc::EINVAL))?;
            }
            let (now, later) =
                piece.split_at(piece.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)));
            if self.holes {
                self.write_data(now)?
            } else {
                self.file.write_all_at(now, self.at as u64)?
            }
            self.at += now.len() as i64;
            self.left -= now.len() as i64;
            piece = later;
        }
        Ok(())
    }

    /// Passes over blocks of zeros: what was never written reads as zeros.
    fn write_data(&self, piece: &[u8]) -> io::Result<()> {
        const ZEROS: [u8; HOLE] = [0; HOLE];
        let (mut start, mut at) = (0, 0);
        while at < piece.len() {
            let boundary = HOLE - (self.at as usize + at) % HOLE;
            let end = piece.len().min(at + boundary);
            if piece[at..end] == ZEROS[..end - at] {
                self.file.write_all_at(&piece[start..at], (self.at + start as i64) as u64)?;
                start = end;
            }
            at = end;
        }
        self.file.write_all_at(&piece[start..], (self.at + start as i64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(map: &[u8], content: i64, real: i64) -> Result<Vec<Segment>, Stopped> {
        let mut reader = MapReader::default();
        for block in map.chunks(BLOCK) {
            let mut whole = [0; BLOCK];
            whole[..block.len()].copy_from_slice(block);
            reader.take(&whole)?;
        }
        if reader.complete() { reader.segments(content, real) } else { Err(nonsense()) }
    }

    #[test]
    fn a_map_survives_a_round_trip() {
        for count in [0, 1, 2, 100, 3000] {
            let segments: Vec<Segment> = (0..count).map(|n| (n * 10_000, 100 + n)).collect();
            let content = segments.iter().map(|(_, length)| length).sum();
            let bytes = map(&segments, 1 << 40);
            assert_eq!(bytes.len() % BLOCK, 0);
            let expected = [segments, vec![(1 << 40, 0)]].concat();
            assert_eq!(read(&bytes, content, 1 << 40).expect("a map"), expected);
        }
    }

    #[test]
    fn maps_that_make_no_sense_are_refused() {
        for text in [
            "1\n5\n10\n",
            "2\n0\n5\n4\n5\n",
            "1\n8\n9223372036854775807\n",
            "1\n-1\n10\n",
            "1\n\n10\n",
            "x",
            "99999999999999999999\n",
            "70000\n",
            "2\n0\n10\n",
            "1\n0\n9\n",
        ] {
            assert!(read(text.as_bytes(), 10, 12).is_err(), "{text:?}");
        }
        assert_eq!(read(b"1\n2\n10\n", 10, 12).expect("a map"), [(2, 10)]);
    }
}
