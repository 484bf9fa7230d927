//! Searches one file after the other, in pieces, so that a file of any size and with lines of any length
//! takes the same memory.

use std::os::fd::{AsRawFd, OwnedFd};

use memchr::{memchr, memchr_iter, memrchr};
use regex_automata::Input;
use regex_automata::meta::{Cache, Regex};

use crate::files::sys;

use super::super::Bounds;
use super::lines::{Context, Lines};

const PIECE: usize = 128 * 1024;
/// A line that is longer is searched in pieces of this size, each as a line of its own.
const LONGEST_LINE: usize = 1024 * 1024;
/// Of a file that is searched as a whole.
pub const LARGEST_WHOLE: usize = 16 * 1024 * 1024;

/// What is wanted of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Whether there is a match.
    Any,
    /// How many lines match.
    Count,
    /// The lines.
    Lines(Context),
}

/// What was found in a file.
#[derive(Default)]
pub struct Matches {
    /// Lines that match; for `Any` at most 1.
    pub lines: usize,
    /// What is shown of them.
    pub text: Lines,
    /// It is not text.
    pub binary: bool,
    /// It is too large to be searched as a whole.
    pub too_large: bool,
    /// The time was over before the end of the file.
    pub late: bool,
}

/// One for each thread.
pub struct Searcher {
    regex: Regex,
    cache: Cache,
    wanted: Wanted,
    multiline: bool,
    /// Lines that are shown of a file at most.
    most: usize,
    buffer: Vec<u8>,
    bounds: Bounds,
}

impl Searcher {
    pub fn new(regex: &Regex, wanted: Wanted, multiline: bool, most: usize, bounds: Bounds) -> Searcher {
        let regex = regex.clone();
        let cache = regex.create_cache();
        Searcher { regex, cache, wanted, multiline, most, buffer: vec![0; PIECE], bounds }
    }

    /// Reads `file` from its start. What cannot be read has no matches.
    pub fn search(&mut self, file: &OwnedFd) -> Matches {
        if self.multiline { self.search_whole(file) } else { self.search_lines(file) }
    }

    fn search_lines(&mut self, file: &OwnedFd) -> Matches {
        let mut matches = Matches::default();
        let mut out = Lines::new(self.wanted, self.most);
        let mut filled = 0;
        let mut pieces = 0;
        loop {
            if filled == self.buffer.len() {
                let larger = (self.buffer.len() * 4).min(LONGEST_LINE);
                self.buffer.resize(larger, 0);
            }
            let Ok(read) = read_next(file, &mut self.buffer[filled..]) else { break };
            let is_end = read == 0;
            // A NUL says that this is no text; what was found before it is not shown either.
            if memchr(0, &self.buffer[filled..filled + read]).is_some() {
                return Matches { binary: true, ..Matches::default() };
            }
            let whole = filled + read;
            let searched = if is_end {
                whole
            } else {
                match memrchr(b'\n', &self.buffer[filled..whole]) {
                    Some(at) => filled + at + 1,
                    None if whole >= LONGEST_LINE => whole,
                    None => 0,
                }
            };
            if searched > 0 && !self.lines(searched, &mut matches, &mut out) {
                break;
            }
            if is_end {
                break;
            }
            self.buffer.copy_within(searched..whole, 0);
            filled = whole - searched;
            pieces += 1;
            if pieces % 64 == 0 && self.bounds.over().is_some() {
                matches.late = true;
                break;
            }
        }
        if self.buffer.len() > PIECE {
            self.buffer.truncate(PIECE);
            self.buffer.shrink_to_fit();
        }
        matches.text = out;
        matches
    }

    /// Searches whole lines at the start of the buffer. False if no more are wanted.
    fn lines(&mut self, length: usize, matches: &mut Matches, out: &mut Lines) -> bool {
        let piece = &self.buffer[..length];
        let mut at = 0;
        while at < length {
            let input = Input::new(piece).range(at..).earliest(self.wanted == Wanted::Any);
            let Some(found) = self.regex.search_with(&mut self.cache, &input) else { break };
            // The empty match behind the last line break is on no line.
            if found.start() >= length && piece.last() == Some(&b'\n') {
                break;
            }
            matches.lines += 1;
            let Wanted::Lines(_) = self.wanted else {
                if self.wanted == Wanted::Any {
                    return false;
                }
                at = line_end(piece, found.start());
                continue;
            };
            let start = memrchr(b'\n', &piece[..found.start()]).map_or(0, |at| at + 1);
            let end = line_end(piece, found.start());
            out.between(piece, start);
            if !out.matched(piece, start..end, found.range()) {
                return false;
            }
            at = if out.only_matching() { found.end().max(found.start() + 1) } else { end };
        }
        out.rest(piece)
    }

    fn search_whole(&mut self, file: &OwnedFd) -> Matches {
        let mut matches = Matches::default();
        let mut out = Lines::new(self.wanted, self.most);
        let mut content = std::mem::take(&mut self.buffer);
        let mut filled = 0;
        loop {
            if filled == content.len() {
                content.resize(content.len() * 2, 0);
            }
            match read_next(file, &mut content[filled..]) {
                Ok(0) | Err(_) => break,
                Ok(read) => filled += read,
            }
            if filled > LARGEST_WHOLE {
                matches.too_large = true;
                break;
            }
        }
        if memchr(0, &content[..filled]).is_some() {
            matches.binary = true;
        } else if !matches.too_large {
            self.whole(&content[..filled], &mut matches, &mut out);
        }
        content.truncate(PIECE);
        content.shrink_to_fit();
        content.resize(PIECE, 0);
        self.buffer = content;
        matches.text = out;
        matches
    }

    fn whole(&mut self, content: &[u8], matches: &mut Matches, out: &mut Lines) {
        let mut at = 0;
        while at < content.len() {
            let input = Input::new(content).range(at..);
            let Some(found) = self.regex.search_with(&mut self.cache, &input) else { break };
            if found.start() >= content.len() {
                break;
            }
            let start = memrchr(b'\n', &content[..found.start()]).map_or(0, |at| at + 1);
            let last = found.end().max(found.start() + 1) - 1;
            let end = line_end(content, last);
            matches.lines += memchr_iter(b'\n', &content[start..end.saturating_sub(1)]).count() + 1;
            match self.wanted {
                Wanted::Any => {
                    matches.lines = 1;
                    return;
                }
                Wanted::Count => {}
                Wanted::Lines(_) => {
                    out.between(content, start);
                    if !out.matched(content, start..end, found.range()) {
                        return;
                    }
                }
            }
            at = end;
        }
        out.rest(content);
    }
}

/// Behind the line break of the line that `at` is on.
fn line_end(piece: &[u8], at: usize) -> usize {
    memchr(b'\n', &piece[at.min(piece.len())..]).map_or(piece.len(), |length| at + length + 1)
}

fn read_next(file: &OwnedFd, buffer: &mut [u8]) -> std::io::Result<usize> {
    // SAFETY: the pointer and the length describe `buffer`.
    sys::check(|| unsafe { libc::read(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) as i32 })
        .map(|read| read as usize)
}
