//! The lines of a file that are shown: those that match and those around them.

use std::collections::VecDeque;
use std::ops::Range;

use memchr::{memchr_iter, memrchr_iter};

use super::searcher::Wanted;

/// A line that is shown has at most so many bytes.
pub const SHOWN: usize = 1000;

/// How much is shown around a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    pub before: usize,
    pub after: usize,
    pub only_matching: bool,
}

/// One line of the answer.
pub struct Line {
    pub number: usize,
    pub matches: bool,
    /// Not next to the line before it.
    pub apart: bool,
    pub text: Vec<u8>,
}

/// Collects lines, piece by piece of a file.
#[derive(Default)]
pub struct Lines {
    pub lines: Vec<Line>,
    context: Option<Context>,
    most: usize,
    /// The number of the line that begins at `seen`.
    number: usize,
    /// Up to where lines of the present piece were counted.
    seen: usize,
    /// Lines after a match that are still to be shown.
    after: usize,
    /// The last lines of the pieces before.
    earlier: VecDeque<Vec<u8>>,
    /// The last line that is shown.
    last: usize,
}

impl Lines {
    pub fn new(wanted: Wanted, most: usize) -> Lines {
        let context = if let Wanted::Lines(context) = wanted { Some(context) } else { None };
        Lines { context, most, number: 1, ..Lines::default() }
    }

    pub fn only_matching(&self) -> bool {
        self.context.is_some_and(|context| context.only_matching)
    }

    /// Counts the lines up to `start`, where one that matches begins, and shows those around it.
    pub fn between(&mut self, piece: &[u8], start: usize) {
        let Some(context) = self.context else { return };
        self.following(piece, start);
        if start < self.seen {
            return;
        }
        let skipped = &piece[self.seen..start];
        let count = memchr_iter(b'\n', skipped).count();
        // Those of this piece that have not been shown, from the last one back.
        let mut before: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut end = start;
        let mut number = self.number + count;
        while before.len() < context.before && end > self.seen {
            let begin = memrchr_iter(b'\n', &piece[self.seen..end - 1])
                .next()
                .map_or(self.seen, |at| self.seen + at + 1);
            number -= 1;
            before.push((number, shown(&piece[begin..end], 0)));
            end = begin;
        }
        let missing = (context.before - before.len()).min(self.earlier.len());
        if count == before.len() {
            for (index, text) in self.earlier.iter().rev().take(missing).enumerate() {
                let number = number.saturating_sub(index + 1);
                if number > self.last {
                    before.push((number, text.clone()));
                }
            }
        }
        for (number, text) in before.into_iter().rev() {
            self.push(number, false, text);
        }
        self.number += count;
        self.seen = start;
    }

    /// A line that matches, or several with a match that spans them. False if there is no room for more.
    pub fn matched(&mut self, piece: &[u8], lines: Range<usize>, found: Range<usize>) -> bool {
        let Some(context) = self.context else { return false };
        if context.only_matching {
            if self.lines.len() >= self.most {
                return false;
            }
            let end = found.end.min(lines.end);
            let number = self.number;
            let text = shown(&piece[found.start.min(end)..end], 0);
            self.push(number, true, text);
            return true;
        }
        let mut at = lines.start.max(self.seen);
        for line in piece[at..lines.end].split_inclusive(|byte| *byte == b'\n') {
            if self.lines.len() >= self.most {
                return false;
            }
            let text = shown(line, found.start.saturating_sub(at));
            let number = self.number;
            self.push(number, true, text);
            self.number += 1;
            at += line.len();
        }
        self.seen = lines.end;
        self.after = context.after;
        true
    }

    /// The end of a piece. False if there is no room for more.
    pub fn rest(&mut self, piece: &[u8]) -> bool {
        let Some(context) = self.context else { return true };
        self.following(piece, piece.len());
        if self.seen < piece.len() {
            let rest = &piece[self.seen..];
            if context.before > 0 {
                let mut lines: Vec<&[u8]> = rest.rsplitn(context.before + 2, |byte| *byte == b'\n').collect();
                lines.truncate(context.before + 1);
                for line in lines.into_iter().skip(1).rev() {
                    self.earlier.push_back(shown(line, 0));
                }
                while self.earlier.len() > context.before {
                    self.earlier.pop_front();
                }
            }
            self.number += memchr_iter(b'\n', rest).count();
        }
        self.seen = 0;
        self.lines.len() < self.most
    }

    /// Lines after the last match, up to `end`.
    fn following(&mut self, piece: &[u8], end: usize) {
        while self.after > 0 && self.seen < end && self.lines.len() < self.most {
            let line =
                piece[self.seen..end].split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
            let (number, text) = (self.number, shown(line, 0));
            self.push(number, false, text);
            self.seen += line.len();
            self.number += 1;
            self.after -= 1;
        }
    }

    fn push(&mut self, number: usize, matches: bool, text: Vec<u8>) {
        if self.lines.len() < self.most {
            let apart = self.last + 1 < number && !self.lines.is_empty();
            self.lines.push(Line { number, matches, apart, text });
            self.last = number;
        }
    }
}

/// A line without its break; a long one is cut around `at`.
fn shown(line: &[u8], at: usize) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= SHOWN {
        return line.to_vec();
    }
    let start = if at < SHOWN / 2 { 0 } else { boundary(line, at.min(line.len()) - SHOWN / 4) };
    let end = boundary(line, (start + SHOWN).min(line.len()));
    let mut text = Vec::with_capacity(SHOWN + 64);
    if start > 0 {
        text.extend_from_slice(format!("[… {start} bytes] ").as_bytes());
    }
    text.extend_from_slice(&line[start..end]);
    if end < line.len() {
        text.extend_from_slice(format!(" [… {} bytes]", line.len() - end).as_bytes());
    }
    text
}

/// The start of the character that `at` is in.
fn boundary(line: &[u8], at: usize) -> usize {
    let low = at.saturating_sub(3);
    (low..=at).rev().find(|at| *at >= line.len() || line[*at] & 0xc0 != 0x80).unwrap_or(at)
}
