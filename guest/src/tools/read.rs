//! `read`: a window of lines of a text file with their numbers, or an image as it is.

use memchr::{memchr, memchr_iter};

use crate::files::read::check_regular;
use crate::files::sys::{self, Doing};
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::{Bounds, Over, count, path_of};

const DEFAULT_LINES: usize = 2000;
const MOST_LINES: usize = 100_000;
/// Of a line that is shown.
const LONGEST_LINE: usize = 2000;
/// Of an answer.
const LARGEST_ANSWER: usize = 256 * 1024;
/// Of an image, or of a document that is given as it is.
const LARGEST_MEDIA: i64 = 5 * 1024 * 1024;
const PIECE: usize = 256 * 1024;

/// Answers `MESSAGE {kind, size, type?, first?, shown?, lines?, more?, cut?}` and DATA: lines as `number`,
/// tab, text; or the bytes of an image or document. `lines` is how many lines the file has, absent if they
/// were not counted to the end. `kind` is `text`, `image`, `document` or `binary`, which has no DATA.
pub fn read(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let bounds = Bounds::of(request, stream)?;
    let path = path_of(request, "path")?;
    let first = count(request, "offset", 1)?.max(1);
    let limit = count(request, "limit", DEFAULT_LINES)?.clamp(1, MOST_LINES);
    check_regular(&path, &path.stat(true).doing("read", path.bytes())?, "read")?;
    let file = sys::open(&path.c(), libc::O_RDONLY | libc::O_NONBLOCK, 0).doing("read", path.bytes())?;
    let stat = sys::stat_fd(&file).doing("read", path.bytes())?;
    check_regular(&path, &stat, "read")?;
    let mut buffer = vec![0; PIECE.min(usize::try_from(stat.st_size).unwrap_or(PIECE).max(4096))];
    let filled = sys::read_at(&file, &mut buffer, 0).doing("read", path.bytes())?;
    let start = &buffer[..filled];
    if let Some((kind, media)) = media(start) {
        let fits = stat.st_size <= LARGEST_MEDIA;
        let kind = if fits { kind } else { "binary" };
        stream.send(&Value::map([
            ("kind", kind.into()),
            ("type", media.into()),
            ("size", stat.st_size.into()),
        ]))?;
        return if fits { send_rest(&file, buffer, filled, stream, path.bytes()) } else { Ok(()) };
    }
    if memchr(0, &start[..filled.min(8192)]).is_some() {
        return stream.send(&Value::map([("kind", "binary".into()), ("size", stat.st_size.into())]));
    }
    let mut window = Window::new(first, limit, request.flag("plain"));
    let mut offset = 0i64;
    let mut length = filled;
    let mut counted = true;
    let mut pieces = 0;
    while length > 0 {
        window.take(&buffer[..length]);
        offset += length as i64;
        pieces += 1;
        if pieces % 16 == 0 {
            match bounds.over() {
                Some(Over::Gone) => return Err(Stopped::Gone),
                // A client that reads the start of a huge file does not wait until its lines are counted.
                Some(Over::Late) => {
                    counted = false;
                    break;
                }
                None => {}
            }
        }
        if window.is_full() && offset > 64 * 1024 * 1024 {
            counted = false;
            break;
        }
        length = sys::read_at(&file, &mut buffer, offset).doing("read", path.bytes())?;
    }
    window.end();
    let mut facts = vec![
        ("kind".to_owned(), Value::from("text")),
        ("size".to_owned(), stat.st_size.into()),
        ("first".to_owned(), (first as i64).into()),
        ("shown".to_owned(), (window.shown as i64).into()),
        ("more".to_owned(), (!counted || window.lines() >= first + window.shown).into()),
        ("cut".to_owned(), (window.cut as i64).into()),
    ];
    if counted {
        facts.push(("lines".to_owned(), (window.lines() as i64).into()));
    }
    stream.send(&Value::Map(facts))?;
    stream.send_data(&window.text)
}

fn send_rest(
    file: &std::os::fd::OwnedFd,
    mut buffer: Vec<u8>,
    mut filled: usize,
    stream: &mut dyn TaskStream,
    path: &[u8],
) -> Result<(), Stopped> {
    let mut offset = 0;
    while filled > 0 && offset < LARGEST_MEDIA {
        let piece = filled.min((LARGEST_MEDIA - offset) as usize);
        stream.send_data(&buffer[..piece])?;
        offset += filled as i64;
        filled = sys::read_at(file, &mut buffer, offset).doing("read", path)?;
    }
    Ok(())
}

/// What a file is by its first bytes.
fn media(start: &[u8]) -> Option<(&'static str, &'static str)> {
    match start {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(("image", "image/png")),
        [0xff, 0xd8, 0xff, ..] => Some(("image", "image/jpeg")),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(("image", "image/gif")),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(("image", "image/webp")),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some(("document", "application/pdf")),
        _ => None,
    }
}

/// Collects the lines that were asked for, and counts all.
struct Window {
    first: usize,
    limit: usize,
    plain: bool,
    text: Vec<u8>,
    shown: usize,
    /// Lines of which only the start is shown.
    cut: usize,
    /// Line breaks so far.
    breaks: usize,
    /// The present line has begun.
    open: bool,
    line: Vec<u8>,
    /// Bytes of the present line that are not kept.
    beyond: usize,
    full: bool,
}

impl Window {
    fn new(first: usize, limit: usize, plain: bool) -> Window {
        Window {
            first,
            limit,
            plain,
            text: Vec::new(),
            shown: 0,
            cut: 0,
            breaks: 0,
            open: false,
            line: Vec::new(),
            beyond: 0,
            full: false,
        }
    }

    fn is_full(&self) -> bool {
        self.full || self.shown >= self.limit
    }

    /// How many lines there are; what follows the last line break is one, unless it is empty.
    fn lines(&self) -> usize {
        self.breaks + usize::from(self.open)
    }

    fn take(&mut self, piece: &[u8]) {
        let mut at = 0;
        while at < piece.len() {
            if self.is_full() {
                let rest = &piece[at..];
                self.breaks += memchr_iter(b'\n', rest).count();
                self.open = rest.last() != Some(&b'\n');
                return;
            }
            let end = memchr(b'\n', &piece[at..]).map(|length| at + length);
            if self.breaks + 1 >= self.first {
                let line = &piece[at..end.unwrap_or(piece.len())];
                let room = LONGEST_LINE.saturating_sub(self.line.len()).min(line.len());
                self.line.extend_from_slice(&line[..room]);
                self.beyond += line.len() - room;
            }
            self.open = end.is_none();
            match end {
                Some(end) => {
                    self.finish();
                    self.breaks += 1;
                    at = end + 1;
                }
                None => return,
            }
        }
    }

    fn end(&mut self) {
        if self.open {
            self.finish();
        }
    }

    fn finish(&mut self) {
        let number = self.breaks + 1;
        if number < self.first || self.is_full() {
            return;
        }
        if self.beyond == 0 && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        if !self.plain {
            self.text.extend_from_slice(format!("{number:>6}\t").as_bytes());
        }
        if self.beyond > 0 {
            // Not in the middle of a character.
            let end = (self.line.len().saturating_sub(3)..self.line.len())
                .rev()
                .find(|at| self.line[*at] & 0xc0 != 0x80)
                .filter(|at| std::str::from_utf8(&self.line[*at..]).is_err())
                .unwrap_or(self.line.len());
            self.beyond += self.line.len() - end;
            self.line.truncate(end);
            self.line.extend_from_slice(format!(" [… {} bytes]", self.beyond).as_bytes());
            self.cut += 1;
        }
        self.text.append(&mut self.line);
        self.text.push(b'\n');
        self.beyond = 0;
        self.shown += 1;
        self.full = self.text.len() >= LARGEST_ANSWER;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::{Scratch, fails, text, tool};
    use super::*;

    #[test]
    fn lines_have_numbers_and_windows_say_what_is_left() {
        let scratch = Scratch::new();
        fs::write(scratch.at("f"), "one\r\ntwo\n\nfour").expect("written");
        let all = tool("read", &scratch, [("path", "f".into())]);
        assert_eq!(text(&all), "     1\tone\n     2\ttwo\n     3\t\n     4\tfour\n");
        assert_eq!(all.message("lines"), Value::Int(4));
        assert_eq!(all.message("more"), Value::Bool(false));
        let part = tool("read", &scratch, [("path", "f".into()), ("offset", 2.into()), ("limit", 2.into())]);
        assert_eq!(text(&part), "     2\ttwo\n     3\t\n");
        assert_eq!(part.message("more"), Value::Bool(true));
        assert_eq!(part.message("lines"), Value::Int(4));
        let past = tool("read", &scratch, [("path", "f".into()), ("offset", 9.into())]);
        assert_eq!((text(&past).as_str(), past.message("lines")), ("", Value::Int(4)));
        fs::write(scratch.at("empty"), "").expect("written");
        assert_eq!(tool("read", &scratch, [("path", "empty".into())]).message("lines"), Value::Int(0));
        assert_eq!(fails("read", &scratch, [("path", "none".into())]).0, "not_found");
        assert_eq!(fails("read", &scratch, [("path", "".into())]).0, "invalid_argument");
        assert_eq!(fails("read", &scratch, [("path", "/".into())]).0, "invalid_argument");
        assert_eq!(fails("read", &scratch, [("path", "/dev/zero".into())]).0, "invalid_argument");
    }

    #[test]
    fn huge_lines_and_invalid_text_are_cut_and_kept() {
        let scratch = Scratch::new();
        let mut content = "ü".repeat(500_000).into_bytes();
        content.extend_from_slice(b"\nshort \xff\n");
        fs::write(scratch.at("f"), content).expect("written");
        let stream = tool("read", &scratch, [("path", "f".into())]);
        assert!(stream.data.starts_with("     1\tüüü".as_bytes()));
        assert!(stream.data.ends_with(b"     2\tshort \xff\n"));
        assert!(text(&stream).contains("ü [… 998000 bytes]\n"));
        assert_eq!(stream.message("cut"), Value::Int(1));
        assert!(stream.data.len() < 2200);
    }

    #[test]
    fn images_come_as_they_are_and_binary_files_not_at_all() {
        let scratch = Scratch::new();
        let png = [&b"\x89PNG\r\n\x1a\n"[..], &[7; 300_000]].concat();
        fs::write(scratch.at("a.png"), &png).expect("written");
        let image = tool("read", &scratch, [("path", "a.png".into())]);
        assert_eq!(image.message("type"), "image/png".into());
        assert_eq!(image.data, png);
        fs::write(scratch.at("b"), b"ELF\0").expect("written");
        let binary = tool("read", &scratch, [("path", "b".into())]);
        assert_eq!((binary.message("kind"), binary.data.len()), ("binary".into(), 0));
        fs::write(scratch.at("large.png"), [&png[..], &vec![0; 6 << 20]].concat()).expect("written");
        let large = tool("read", &scratch, [("path", "large.png".into())]);
        assert_eq!((large.message("kind"), large.data.len()), ("binary".into(), 0));
    }

    #[test]
    fn a_gigabyte_without_a_line_break_is_read_at_once() {
        let scratch = Scratch::new();
        let file = fs::File::create(scratch.at("huge")).expect("created");
        std::io::Write::write_all(&mut &file, &vec![b'a'; 1 << 20]).expect("written");
        drop(file);
        for _ in 0..10 {
            let copy = fs::read(scratch.at("huge")).expect("read");
            let mut file = fs::File::options().append(true).open(scratch.at("huge")).expect("opened");
            std::io::Write::write_all(&mut file, &copy).expect("written");
        }
        let begun = std::time::Instant::now();
        let stream = tool("read", &scratch, [("path", "huge".into())]);
        assert!(begun.elapsed() < std::time::Duration::from_secs(15));
        assert!(stream.data.len() < 2200);
    }

    #[test]
    fn answers_are_bounded() {
        let scratch = Scratch::new();
        let line = format!("{}\n", "y".repeat(1900));
        fs::write(scratch.at("g"), line.repeat(1000)).expect("written");
        let stream = tool("read", &scratch, [("path", "g".into())]);
        assert!(stream.data.len() < LARGEST_ANSWER + 2100, "{}", stream.data.len());
        assert_eq!(stream.message("more"), Value::Bool(true));
        assert_eq!(stream.message("lines"), Value::Int(1000));
    }
}
