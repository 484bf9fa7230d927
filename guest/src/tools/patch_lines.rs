//! Finds the old lines of a chunk in a file, and puts the new ones in their place.

use crate::failure::Failure;
use crate::files::sys::shown;
use crate::task::Stopped;

use super::patch::Chunk;

/// A line and how it ends.
#[derive(Clone)]
struct Line<'a> {
    text: &'a [u8],
    /// `\n`, `\r\n` or nothing.
    end: &'a [u8],
}

/// The content after all chunks. Lines that stay are kept byte by byte with their ends.
pub fn updated(content: &[u8], chunks: &[Chunk<'_>], path: &[u8]) -> Result<Vec<u8>, Stopped> {
    let lines = split(content);
    let mut made: Vec<u8> = Vec::with_capacity(content.len() + 256);
    let mut replacements: Vec<(usize, usize, &Chunk<'_>)> = Vec::new();
    let mut at = 0;
    for chunk in chunks {
        if let Some(after) = chunk.after {
            let found = seek(&lines, &[after], at, false);
            at = found.ok_or_else(|| missing(path, "the context", &[after]))? + 1;
        }
        if chunk.old.is_empty() {
            // Without old lines the new ones come at the end.
            replacements.push((lines.len(), 0, chunk));
            continue;
        }
        let mut old = &chunk.old[..];
        let mut found = seek(&lines, old, at, chunk.at_end);
        // A patch may end with an empty line where the file ends with a line break.
        if found.is_none() && old.last().is_some_and(|line| line.is_empty()) {
            old = &old[..old.len() - 1];
            found = seek(&lines, old, at, chunk.at_end);
        }
        let start = found.ok_or_else(|| missing(path, "the lines", &chunk.old))?;
        replacements.push((start, old.len(), chunk));
        at = start + old.len();
    }
    replacements.sort_by_key(|(start, _, _)| *start);
    let usual = usual_end(&lines);
    let mut next = 0;
    for (start, count, chunk) in replacements {
        for line in &lines[next..start.max(next)] {
            push(&mut made, line.text, line.end, usual);
        }
        let old = &lines[start..start + count];
        for (kept, text) in &chunk.new {
            match kept.and_then(|index| old.get(index)) {
                Some(line) => push(&mut made, line.text, line.end, usual),
                // The empty line that stood for the last line break.
                None if kept.is_some() => {}
                None => push(&mut made, text, usual, usual),
            }
        }
        next = start + count;
    }
    for line in &lines[next..] {
        push(&mut made, line.text, line.end, usual);
    }
    Ok(made)
}

/// Every line ends with a break, the last one too.
fn push(made: &mut Vec<u8>, text: &[u8], end: &[u8], usual: &[u8]) {
    made.extend_from_slice(text);
    made.extend_from_slice(if end.is_empty() { usual } else { end });
}

fn split(content: &[u8]) -> Vec<Line<'_>> {
    content
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let text = if text.len() < line.len() { text.strip_suffix(b"\r").unwrap_or(text) } else { text };
            Line { text, end: &line[text.len()..] }
        })
        .collect()
}

/// How new lines end: as the first line of the file does.
fn usual_end<'a>(lines: &[Line<'a>]) -> &'a [u8] {
    lines.first().map(|line| line.end).filter(|end| !end.is_empty()).unwrap_or(b"\n")
}

/// Where `wanted` begins, at `from` or later. Lines are compared exactly first, then without white space at
/// their end, then without any around them, then with typographic signs as plain ones.
fn seek(lines: &[Line<'_>], wanted: &[&[u8]], from: usize, at_end: bool) -> Option<usize> {
    let last = lines.len().checked_sub(wanted.len())?;
    if at_end && last >= from {
        if let Some(found) = seek_in(lines, wanted, last, last) {
            return Some(found);
        }
    }
    seek_in(lines, wanted, from, last)
}

/// Whether two lines are taken for the same.
type Same = fn(&[u8], &[u8]) -> bool;

fn seek_in(lines: &[Line<'_>], wanted: &[&[u8]], from: usize, last: usize) -> Option<usize> {
    let passes: [Same; 4] = [
        |a, b| a == b,
        |a, b| a.trim_ascii_end() == b.trim_ascii_end(),
        |a, b| a.trim_ascii() == b.trim_ascii(),
        |a, b| plain(a) == plain(b),
    ];
    passes.iter().find_map(|same| {
        (from..=last)
            .find(|start| wanted.iter().zip(&lines[*start..]).all(|(wanted, line)| same(line.text, wanted)))
    })
}

/// With plain dashes, quotes and spaces.
fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let plain = |sign: char| match sign {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        sign => sign,
    };
    text.trim().chars().map(plain).collect()
}

fn missing(path: &[u8], what: &str, lines: &[&[u8]]) -> Stopped {
    let shown_lines: Vec<String> =
        lines.iter().take(12).map(|line| shown(&line[..line.len().min(300)])).collect();
    let more = if lines.len() > 12 { "\n…" } else { "" };
    Failure::new(
        "failed_precondition",
        format!("Cannot find {what} of a chunk in \"{}\":\n{}{more}", shown(path), shown_lines.join("\n")),
    )
    .into()
}
