//! The output of a command, as far as it is kept.
//!
//! Output is numbered by bytes from 0, all channels together, in the order in which it was read. The log
//! keeps the newest part. When space is needed, older bytes are dropped: those that a reader has
//! acknowledged, and with `Overflow::Drop` any.

use std::collections::VecDeque;

/// What happens when the log is full and no reader takes output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The command blocks on its full pipe.
    Wait,
    /// The oldest output is dropped.
    Drop,
}

struct Chunk {
    channel: u8,
    bytes: Vec<u8>,
}

/// Pieces of output are put together up to this size.
const CHUNK: usize = 65_536;

/// With `Wait`, a smaller log could be full before a reader sends an acknowledgement, and both would wait for
/// ever.
const LEAST_WAIT: u64 = 524_288;
const MOST: u64 = 64 << 20;

/// The kept output of one command.
pub struct OutputLog {
    chunks: VecDeque<Chunk>,
    kept_from: u64,
    total: u64,
    acknowledged: u64,
    keep: u64,
    overflow: Overflow,
}

impl OutputLog {
    /// An empty log that keeps `keep` bytes.
    pub fn new(keep: u64, overflow: Overflow) -> OutputLog {
        let least = if overflow == Overflow::Wait { LEAST_WAIT } else { 4096 };
        OutputLog {
            chunks: VecDeque::new(),
            kept_from: 0,
            total: 0,
            acknowledged: 0,
            keep: keep.clamp(least, MOST),
            overflow,
        }
    }

    /// Offset of the first byte that is kept.
    pub fn kept_from(&self) -> u64 {
        self.kept_from
    }

    /// All bytes ever written.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that are kept.
    pub fn kept(&self) -> u64 {
        self.total - self.kept_from
    }

    /// Whether more may be read from the command.
    pub fn has_room(&self) -> bool {
        self.overflow == Overflow::Drop || self.total - self.acknowledged.max(self.kept_from) < self.keep
    }

    /// Adds output. What was in the pipe when a command ended is added even if there is no room.
    pub fn push(&mut self, channel: u8, bytes: &[u8]) {
        for piece in bytes.chunks(CHUNK) {
            self.total += piece.len() as u64;
            match self.chunks.back_mut() {
                Some(last) if last.channel == channel && last.bytes.len() + piece.len() <= CHUNK => {
                    last.bytes.extend_from_slice(piece)
                }
                _ => self.chunks.push_back(Chunk { channel, bytes: piece.to_vec() }),
            }
        }
        self.trim();
    }

    /// Some reader has taken everything before `offset`.
    pub fn acknowledge(&mut self, offset: u64) {
        self.acknowledged = self.acknowledged.max(offset.min(self.total));
    }

    /// Whole chunks are dropped, so slightly more is kept than requested and never less.
    fn trim(&mut self) {
        while let Some(first) = self.chunks.front() {
            let end = self.kept_from + first.bytes.len() as u64;
            if self.total - end < self.keep {
                return;
            }
            if self.overflow == Overflow::Wait && end > self.acknowledged {
                return;
            }
            self.kept_from = end;
            self.chunks.pop_front();
        }
    }

    /// Drops all output; the count stays.
    pub fn forget(&mut self) {
        self.chunks = VecDeque::new();
        self.kept_from = self.total;
    }

    /// Frees memory that was reserved for more.
    pub fn shrink(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.bytes.shrink_to_fit());
        self.chunks.shrink_to_fit();
    }

    /// At most `limit` bytes of one channel from `offset` on, which must not be before `kept_from`; `None` at
    /// the end.
    pub fn at(&self, offset: u64, limit: usize) -> Option<(u8, &[u8])> {
        if offset < self.kept_from || offset >= self.total {
            return None;
        }
        // Readers are mostly near one of the ends; the log has few chunks in any case.
        let mut end = self.total;
        for chunk in self.chunks.iter().rev() {
            let start = end - chunk.bytes.len() as u64;
            if offset >= start {
                let from = (offset - start) as usize;
                let to = chunk.bytes.len().min(from.saturating_add(limit));
                return Some((chunk.channel, &chunk.bytes[from..to]));
            }
            end = start;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Random;

    fn read(log: &OutputLog, mut offset: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((_, bytes)) = log.at(offset, 1000) {
            all.extend_from_slice(bytes);
            offset += bytes.len() as u64;
        }
        all
    }

    #[test]
    fn channels_keep_their_order() {
        let mut log = OutputLog::new(0, Overflow::Wait);
        for (channel, text) in [(1, "a"), (1, "b"), (2, "c"), (1, "d")] {
            log.push(channel, text.as_bytes());
        }
        assert_eq!(log.at(0, 9), Some((1, &b"ab"[..])));
        assert_eq!(log.at(1, 9), Some((1, &b"b"[..])));
        assert_eq!(log.at(2, 9), Some((2, &b"c"[..])));
        assert_eq!(log.at(3, 9), Some((1, &b"d"[..])));
        assert_eq!(log.at(4, 9), None);
    }

    #[test]
    fn waiting_keeps_what_nobody_acknowledged() {
        let mut log = OutputLog::new(0, Overflow::Wait);
        let mut pushed = 0u64;
        while log.has_room() {
            log.push(1, &[1; 10_000]);
            pushed += 10_000;
        }
        assert_eq!((log.kept_from(), log.kept()), (0, pushed));
        log.acknowledge(300_000);
        assert!(log.has_room());
        log.push(1, &[2; 200_000]);
        assert!(log.kept_from() > 0 && log.kept_from() <= 300_000);
    }

    #[test]
    fn dropping_forgets_the_oldest() {
        let mut log = OutputLog::new(100_000, Overflow::Drop);
        for _ in 0..100 {
            assert!(log.has_room());
            log.push(1, &[1; 10_000]);
        }
        assert_eq!(log.total(), 1_000_000);
        assert!((100_000..100_000 + CHUNK as u64).contains(&log.kept()));
        assert_eq!(log.at(0, 1), None);
        assert_eq!(read(&log, log.kept_from()).len() as u64, log.kept());
    }

    #[test]
    fn the_log_is_always_a_suffix_of_what_was_written() {
        let mut random = Random::new(5);
        for _ in 0..300 {
            let overflow = if random.below(2) == 0 { Overflow::Wait } else { Overflow::Drop };
            let mut log = OutputLog::new(random.below(200_000), overflow);
            let mut all = Vec::new();
            for _ in 0..random.below(60) {
                if log.has_room() {
                    let bytes: Vec<u8> = (0..random.below(40_000)).map(|_| random.below(256) as u8).collect();
                    log.push(1 + random.below(2) as u8, &bytes);
                    all.extend_from_slice(&bytes);
                }
                log.acknowledge(random.below(log.total() + 1));
                assert_eq!(log.total(), all.len() as u64);
            }
            assert!(log.kept() >= log.keep.min(log.total()));
            assert_eq!(read(&log, log.kept_from()), &all[log.kept_from() as usize..]);
        }
    }
}
