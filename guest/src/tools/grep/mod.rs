//! `grep`: what matches a regular expression, in a file or in the files of a tree.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex_automata::meta::Regex;

use crate::files::path::FilePath;
use crate::files::sys::{self, Doing, invalid};
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::glob_pattern::GlobPattern;
use super::tree::{self, Found, Visitor, Walked};
use super::{Bounds, Over, count, path_of, texts};
use lines::{Context, Line};
use pattern::Reading;
use searcher::{Matches, Searcher, Wanted};

mod file_types;
mod lines;
mod pattern;
mod searcher;
#[cfg(test)]
mod tests;

const DEFAULT_LIMIT: usize = 250;
const MOST_LIMIT: usize = 10_000;
const MOST_CONTEXT: usize = 100;
/// What is kept of all files before the answer is put together, in bytes.
const MOST_KEPT: usize = 8 * 1024 * 1024;
/// Of an answer, in bytes.
const LARGEST_ANSWER: usize = 256 * 1024;
const MOST_FILES: usize = 500_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Files,
    Content,
    Count,
}

/// Answers `MESSAGE {files, matches, shown, more, late, searched, binary, tooLarge}` and the text as DATA:
/// paths newest first, or lines and counts by path.
pub fn grep(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let bounds = Bounds::of(request, stream)?;
    let asked = Asked::of(request)?;
    let root = path_of(request, "path")?;
    let stat = root.stat(true).doing("search", root.bytes())?;
    let kept = Arc::new(AtomicUsize::new(0));
    let (mut hits, walked, seen, prefix) = if sys::kind(&stat) == libc::S_IFDIR {
        let make = || Search::new(&asked, bounds, &kept);
        let (searches, walked) =
            tree::walk(&root, asked.respect_ignore, bounds, make).doing("search", root.bytes())?;
        let mut hits = Vec::new();
        let mut seen = Seen::default();
        for search in searches {
            hits.extend(search.hits);
            seen.add(&search.seen);
        }
        (hits, walked, seen, root.bytes().to_vec())
    } else {
        // A file that is named is searched whatever filters say.
        crate::files::read::check_regular(&root, &stat, "search")?;
        let mut search = Search::new(&asked, bounds, &kept);
        search.named(&root)?;
        (search.hits, Walked::default(), search.seen, Vec::new())
    };
    if walked.over == Some(Over::Gone) {
        return Err(Stopped::Gone);
    }
    if asked.mode == Mode::Files {
        hits.sort_unstable_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
    } else {
        hits.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    }
    let files = hits.len();
    let matches: usize = hits.iter().map(|hit| hit.matches.lines).sum();
    let (text, shown, more) = answer(&asked, &hits, &prefix);
    let late = walked.over == Some(Over::Late) || seen.late;
    stream.send(&Value::map([
        ("files", (files as i64).into()),
        ("matches", (matches as i64).into()),
        ("shown", (shown as i64).into()),
        ("more", (more || walked.incomplete).into()),
        ("late", late.into()),
        ("searched", (seen.searched as i64).into()),
        ("binary", (seen.binary as i64).into()),
        ("tooLarge", (seen.too_large as i64).into()),
    ]))?;
    stream.send_data(&text)
}

struct Asked {
    regex: Regex,
    mode: Mode,
    wanted: Wanted,
    multiline: bool,
    numbers: bool,
    respect_ignore: bool,
    include: Vec<GlobPattern>,
    exclude: Vec<GlobPattern>,
    types: Vec<GlobPattern>,
    limit: usize,
    offset: usize,
}

impl Asked {
    fn of(request: &Value) -> Result<Asked, Stopped> {
        let pattern = request.text("pattern").ok_or_else(|| invalid("The request has no \"pattern\""))?;
        let multiline = request.flag("multiline");
        let reading =
            Reading { any_case: request.flag("ignoreCase"), multiline, fixed: request.flag("fixed") };
        let mode = match request.text("mode") {
            None | Some("files_with_matches") => Mode::Files,
            Some("content") => Mode::Content,
            Some("count") => Mode::Count,
            Some(_) => return Err(invalid("The mode is \"files_with_matches\", \"content\" or \"count\"")),
        };
        let context = Context {
            before: count(request, "before", 0)?.min(MOST_CONTEXT),
            after: count(request, "after", 0)?.min(MOST_CONTEXT),
            only_matching: request.flag("onlyMatching"),
        };
        let mut asked = Asked {
            regex: pattern::build(pattern, reading)?,
            mode,
            wanted: match mode {
                Mode::Files => Wanted::Any,
                Mode::Count => Wanted::Count,
                Mode::Content => Wanted::Lines(context),
            },
            multiline,
            numbers: !matches!(request.get("numbers"), Some(Value::Bool(false))),
            respect_ignore: !request.flag("noIgnore"),
            include: Vec::new(),
            exclude: Vec::new(),
            types: Vec::new(),
            // 0 asks for everything.
            limit: match count(request, "limit", DEFAULT_LIMIT)? {
                0 => MOST_LIMIT,
                limit => limit.min(MOST_LIMIT),
            },
            offset: count(request, "offset", 0)?.min(MOST_LIMIT),
        };
        for glob in texts(request, "glob")? {
            match glob.strip_prefix(b"!") {
                Some(negated) => asked.exclude.push(parse_glob(negated)?),
                None => asked.include.push(parse_glob(&glob)?),
            }
        }
        for name in texts(request, "type")? {
            let name = String::from_utf8_lossy(&name).into_owned();
            let globs = file_types::globs(&name).ok_or_else(|| {
                invalid(format!("There is no file type \"{name}\"; these are known: {}", file_types::names()))
            })?;
            for glob in globs {
                asked.types.push(parse_glob(glob.as_bytes())?);
            }
        }
        Ok(asked)
    }

    fn takes(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let any = |globs: &[GlobPattern]| {
            globs.iter().any(|glob| glob.matches(if glob.has_separator() { path } else { name }))
        };
        (self.include.is_empty() || any(&self.include))
            && (self.types.is_empty() || any(&self.types))
            && !any(&self.exclude)
    }
}

/// A glob of a filter: a leading `/` or `./` is the root of the search.
pub(super) fn parse_glob(glob: &[u8]) -> Result<GlobPattern, Stopped> {
    let glob = glob.strip_prefix(b"./").or_else(|| glob.strip_prefix(b"/")).unwrap_or(glob);
    GlobPattern::new(glob).ok_or_else(|| invalid("A glob is too long or has too many alternatives"))
}

/// What was looked at.
#[derive(Clone, Copy, Default)]
struct Seen {
    searched: usize,
    binary: usize,
    too_large: usize,
    late: bool,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.searched += other.searched;
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.late |= other.late;
    }
}

/// A file with matches.
struct Hit {
    path: Vec<u8>,
    modified: (i64, i64),
    matches: Matches,
}

struct Search<'a> {
    asked: &'a Asked,
    searcher: Searcher,
    hits: Vec<Hit>,
    seen: Seen,
    /// Bytes of all threads.
    kept: Arc<AtomicUsize>,
}

impl<'a> Search<'a> {
    fn new(asked: &'a Asked, bounds: Bounds, kept: &Arc<AtomicUsize>) -> Search<'a> {
        // One more than is shown says that there are more.
        let most = asked.limit.saturating_add(asked.offset).saturating_add(1);
        let searcher = Searcher::new(&asked.regex, asked.wanted, asked.multiline, most, bounds);
        Search { asked, searcher, hits: Vec::new(), seen: Seen::default(), kept: kept.clone() }
    }

    fn named(&mut self, path: &FilePath) -> Result<(), Stopped> {
        let file =
            sys::open(&path.c(), libc::O_RDONLY | libc::O_NONBLOCK, 0).doing("search", path.bytes())?;
        self.search(&file, path.bytes());
        Ok(())
    }

    /// False if no more can be kept.
    fn search(&mut self, file: &std::os::fd::OwnedFd, path: &[u8]) -> bool {
        let matches = self.searcher.search(file);
        self.seen.searched += 1;
        self.seen.binary += usize::from(matches.binary);
        self.seen.too_large += usize::from(matches.too_large);
        self.seen.late |= matches.late;
        if matches.lines == 0 {
            return true;
        }
        let modified = if self.asked.mode == Mode::Files {
            sys::stat_fd(file).map_or((0, 0), |stat| (stat.st_mtime, stat.st_mtime_nsec))
        } else {
            (0, 0)
        };
        let bytes: usize = matches.text.lines.iter().map(|line| line.text.len() + 64).sum();
        let bytes = bytes + path.len() + 128;
        self.hits.push(Hit { path: path.to_vec(), modified, matches });
        self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes < MOST_KEPT && self.hits.len() < MOST_FILES
    }
}

impl Visitor for Search<'_> {
    fn file(&mut self, found: &Found<'_>) -> bool {
        if !self.asked.takes(found.path) {
            return true;
        }
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        match sys::open_at(found.directory.as_raw_fd(), found.name, flags, 0) {
            Ok(file) => self.search(&file, found.path),
            Err(_) => true,
        }
    }
}

/// The text, how many entries it has, and whether there are more.
fn answer(asked: &Asked, hits: &[Hit], prefix: &[u8]) -> (Vec<u8>, usize, bool) {
    let mut text = Vec::new();
    let mut shown = 0;
    let mut skipped = 0;
    let mut one = |entry: &dyn Fn(&mut Vec<u8>)| {
        if skipped < asked.offset {
            skipped += 1;
            return true;
        }
        if shown == asked.limit || text.len() >= LARGEST_ANSWER {
            return false;
        }
        shown += 1;
        entry(&mut text);
        true
    };
    let mut complete = true;
    'all: for (index, hit) in hits.iter().enumerate() {
        let path = |text: &mut Vec<u8>| {
            text.extend_from_slice(prefix);
            if !prefix.is_empty() && prefix != b"/" {
                text.push(b'/');
            }
            text.extend_from_slice(&hit.path);
        };
        match asked.mode {
            Mode::Files => {
                complete = one(&|text| {
                    path(text);
                    text.push(b'\n');
                });
                if !complete {
                    break 'all;
                }
            }
            Mode::Count => {
                complete = one(&|text| {
                    path(text);
                    text.extend_from_slice(format!(":{}\n", hit.matches.lines).as_bytes());
                });
                if !complete {
                    break 'all;
                }
            }
            Mode::Content => {
                let has_context = matches!(
                    asked.wanted,
                    Wanted::Lines(Context { before, after, .. }) if before + after > 0
                );
                for (at, line) in hit.matches.text.lines.iter().enumerate() {
                    let Line { number, matches, apart, text: content } = line;
                    complete = one(&|text| {
                        if has_context && (*apart || (at == 0 && index > 0)) && !text.is_empty() {
                            text.extend_from_slice(b"--\n");
                        }
                        let separator = if *matches { b':' } else { b'-' };
                        path(text);
                        text.push(separator);
                        if asked.numbers {
                            text.extend_from_slice(number.to_string().as_bytes());
                            text.push(separator);
                        }
                        text.extend_from_slice(content);
                        text.push(b'\n');
                    });
                    if !complete {
                        break 'all;
                    }
                }
            }
        }
    }
    (text, shown, !complete)
}
