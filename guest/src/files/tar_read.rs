//! Reads a tar archive from a stream: ustar, pax with attributes and holes, and GNU long names.

use crate::task::{Stopped, TaskStream};

use super::sparse::{MapReader, Segment};
use super::sys::{invalid, shown};
use super::tar_header::{
    ATTRIBUTE, Attribute, BLOCK, BadHeader, Block, Header, decimal, padding, records, time, unescaped,
};

/// Of a GNU long name or link.
const LONGEST_NAME: i64 = 64 * 1024;
/// Of all records before one entry.
const LONGEST_RECORDS: i64 = 1024 * 1024;

/// Gives out one entry after the other. The content of an entry must be taken with `content` before the next.
pub struct TarReader<'a> {
    stream: &'a mut dyn TaskStream,
    chunk: Vec<u8>,
    at: usize,
}

/// What headers before an entry say about it.
#[derive(Default)]
struct Overrides {
    any: bool,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<i64>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<(i64, i64)>,
    attributes: Vec<Attribute>,
    /// Version, name and size of GNU's way to write holes.
    sparse: Option<Sparse>,
}

#[derive(Default)]
struct Sparse {
    major: Option<i64>,
    minor: Option<i64>,
    name: Option<Vec<u8>>,
    size: Option<i64>,
}

impl<'a> TarReader<'a> {
    /// Reads from the start of `stream`.
    pub fn new(stream: &'a mut dyn TaskStream) -> TarReader<'a> {
        TarReader { stream, chunk: Vec::new(), at: 0 }
    }

    /// What it reads from.
    pub fn stream(&self) -> &dyn TaskStream {
        self.stream
    }

    /// The next entry, or `None` at the archive's end, which takes the rest of the stream.
    pub fn entry(&mut self) -> Result<Option<Header>, Stopped> {
        let mut overrides = Overrides::default();
        loop {
            let block = self.block()?;
            if block.iter().all(|byte| *byte == 0) {
                if overrides.any {
                    return Err(invalid("The archive ends before the entry that its last header announces"));
                }
                while self.more()? {
                    self.at = self.chunk.len();
                }
                return Ok(None);
            }
            let header = Header::decode(&block).map_err(bad)?;
            match header.kind {
                b'x' => {
                    let bytes = self.small(header.size, LONGEST_RECORDS)?;
                    overrides.take(&bytes)?;
                }
                b'g' => drop(self.small(header.size, LONGEST_RECORDS)?),
                b'L' => overrides.name = Some(until_nul(self.small(header.size, LONGEST_NAME)?)),
                b'K' => overrides.link = Some(until_nul(self.small(header.size, LONGEST_NAME)?)),
                _ => return overrides.apply(header).map(Some),
            }
            overrides.any |= header.kind != b'g';
        }
    }

    /// Takes the map at the start of a sparse file of `size` bytes in the archive. Returns how many bytes of
    /// content are left.
    pub fn map(&mut self, size: i64, real: i64) -> Result<(Vec<Segment>, i64), Stopped> {
        let mut map = MapReader::default();
        let mut left = size;
        while !map.complete() {
            left -= BLOCK as i64;
            if left < 0 {
                return Err(invalid("The archive has a sparse file whose map is too short"));
            }
            map.take(&self.block()?)?;
        }
        Ok((map.segments(left, real)?, left))
    }

    /// Hands `size` bytes of content to `take`, in pieces, and passes over what fills up the last block.
    pub fn content(
        &mut self,
        size: i64,
        mut take: impl FnMut(&[u8]) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let mut left = size;
        while left > 0 {
            let piece = self.piece(usize::try_from(left).unwrap_or(usize::MAX))?;
            take(piece)?;
            left -= piece.len() as i64;
        }
        let mut left = padding(size);
        while left > 0 {
            left -= self.piece(left)?.len();
        }
        Ok(())
    }

    fn small(&mut self, size: i64, largest: i64) -> Result<Vec<u8>, Stopped> {
        if size > largest {
            return Err(invalid(format!("The archive has a header of {size} bytes, more than {largest}")));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        self.content(size, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    fn block(&mut self) -> Result<Block, Stopped> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            let piece = self.piece(BLOCK - filled)?;
            block[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        }
        Ok(block)
    }

    /// At least one and at most `most` bytes.
    fn piece(&mut self, most: usize) -> Result<&[u8], Stopped> {
        if !self.more()? {
            return Err(invalid("The archive ends too early"));
        }
        let start = self.at;
        self.at += most.min(self.chunk.len() - start);
        Ok(&self.chunk[start..self.at])
    }

    fn more(&mut self) -> Result<bool, Stopped> {
        while self.at == self.chunk.len() {
            let Some(chunk) = self.stream.receive()? else { return Ok(false) };
            self.chunk = chunk;
            self.at = 0;
        }
        Ok(true)
    }
}

impl Overrides {
    fn take(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        for (key, value) in records(bytes).map_err(bad)? {
            let nonsense = || invalid(format!("The archive has a \"{}\" that makes no sense", shown(key)));
            let id = || decimal(value).and_then(|id| u32::try_from(id).ok());
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value).ok_or_else(nonsense)?),
                b"uid" => self.uid = id(),
                b"gid" => self.gid = id(),
                b"mtime" => self.mtime = Some(time(value).ok_or_else(nonsense)?),
                _ => {
                    if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                        self.sparse.get_or_insert_default().take(key, value);
                    } else if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                        self.attributes.push((unescaped(name), value.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }

    fn apply(self, mut header: Header) -> Result<Header, Stopped> {
        header.name = self.name.unwrap_or(header.name);
        header.link = self.link.unwrap_or(header.link);
        header.size = self.size.unwrap_or(header.size);
        header.uid = self.uid.unwrap_or(header.uid);
        header.gid = self.gid.unwrap_or(header.gid);
        header.mtime = self.mtime.unwrap_or(header.mtime);
        header.attributes = self.attributes;
        if let Some(sparse) = self.sparse {
            let (Sparse { major: Some(1), minor: Some(0), name: Some(name), size: Some(size) }, b'0') =
                (sparse, header.kind)
            else {
                return Err(invalid("The archive has a sparse file of a kind that is not supported"));
            };
            header.name = name;
            header.sparse = Some(size);
        }
        // Archives from before directories had a type mark them by a slash.
        if header.kind == b'0' && header.name.ends_with(b"/") {
            header.kind = b'5';
        }
        // Links and directories have no content, whatever their size field says.
        if matches!(header.kind, b'1'..=b'6') {
            header.size = 0;
        }
        Ok(header)
    }
}

impl Sparse {
    fn take(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"major" => self.major = decimal(value),
            b"minor" => self.minor = decimal(value),
            b"name" => self.name = Some(value.to_vec()),
            b"realsize" => self.size = decimal(value),
            _ => {}
        }
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    bytes
}

fn bad(BadHeader(reason): BadHeader) -> Stopped {
    invalid(format!("The archive has {reason}"))
}
