//! `glob`: files by a pattern of their path, newest first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::files::path::FilePath;
use crate::files::sys::{self, Doing, invalid};
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::glob_pattern::GlobPattern;
use super::grep::parse_glob;
use super::tree::{self, Found, Visitor};
use super::{Bounds, Over, below, count, path_of};

const DEFAULT_LIMIT: usize = 100;
const MOST_LIMIT: usize = 100_000;
/// Of paths that are kept, in bytes.
const MOST_KEPT: usize = 32 * 1024 * 1024;
/// Of an answer, in bytes.
const LARGEST_ANSWER: usize = 1024 * 1024;

/// Answers `MESSAGE {files, shown, more, late}` and the paths as DATA, one on a line.
pub fn glob(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let bounds = Bounds::of(request, stream)?;
    let given = request.bytes("pattern").filter(|pattern| !pattern.is_empty());
    let given = given.ok_or_else(|| invalid("The request has no \"pattern\""))?;
    let (root, pattern) = if given.starts_with(b"/") {
        split_root(request, given)?
    } else {
        (path_of(request, "path")?, given.to_vec())
    };
    let limit = match count(request, "limit", DEFAULT_LIMIT)? {
        0 => MOST_LIMIT,
        limit => limit.min(MOST_LIMIT),
    };
    let pattern = parse_glob(&pattern)?;
    let kept = Arc::new(AtomicUsize::new(0));
    let make = || Matching { pattern: &pattern, found: Vec::new(), kept: kept.clone() };
    let (matching, walked) =
        tree::walk(&root, !request.flag("noIgnore"), bounds, make).doing("search", root.bytes())?;
    if walked.over == Some(Over::Gone) {
        return Err(Stopped::Gone);
    }
    let mut found: Vec<_> = matching.into_iter().flat_map(|one| one.found).collect();
    found.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut text = Vec::new();
    let mut shown = 0;
    for (_, path) in found.iter().take(limit) {
        if text.len() >= LARGEST_ANSWER {
            break;
        }
        text.extend_from_slice(root.bytes());
        if root.bytes() != b"/" {
            text.push(b'/');
        }
        text.extend_from_slice(path);
        text.push(b'\n');
        shown += 1;
    }
    stream.send(&Value::map([
        ("files", (found.len() as i64).into()),
        ("shown", (shown as i64).into()),
        ("more", (shown < found.len() || walked.incomplete).into()),
        ("late", (walked.over == Some(Over::Late)).into()),
    ]))?;
    stream.send_data(&text)
}

/// The directory before the first part that is a pattern, and the rest.
fn split_root(request: &Value, pattern: &[u8]) -> Result<(FilePath, Vec<u8>), Stopped> {
    let special = pattern.iter().position(|byte| b"*?[{\\".contains(byte)).unwrap_or(pattern.len());
    let slash = pattern[..special].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let rest = pattern[slash + 1..].to_vec();
    Ok((below(request, if slash == 0 { b"/" } else { &pattern[..slash] })?, rest))
}

type Modified = (i64, i64);

struct Matching<'a> {
    pattern: &'a GlobPattern,
    found: Vec<(Modified, Vec<u8>)>,
    kept: Arc<AtomicUsize>,
}

impl Matching<'_> {
    fn take(&mut self, found: &Found<'_>) -> bool {
        if !self.pattern.matches(found.path) {
            return true;
        }
        let Ok(stat) = sys::stat_at(found.directory, found.name, false) else { return true };
        self.found.push(((stat.st_mtime, stat.st_mtime_nsec), found.path.to_vec()));
        let bytes = found.path.len() + 64;
        self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes < MOST_KEPT
    }
}

impl Visitor for Matching<'_> {
    fn file(&mut self, found: &Found<'_>) -> bool {
        self.take(found)
    }

    fn other(&mut self, found: &Found<'_>) -> bool {
        self.take(found)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::{Scratch, fails, text, tool};
    use super::*;

    fn names(scratch: &Scratch, pattern: &str) -> Vec<String> {
        let stream = tool("glob", scratch, [("pattern", pattern.into())]);
        let root = format!("{}/", scratch.root().display());
        let mut names: Vec<String> = text(&stream).lines().map(|line| line.replace(&root, "")).collect();
        names.sort();
        names
    }

    #[test]
    fn patterns_find_files_below_the_directory() {
        let scratch = Scratch::new();
        for path in ["a.rs", "src/b.rs", "src/deep/c.rs", "node_modules/d.rs", ".env", "src/x.ts"] {
            fs::create_dir_all(scratch.at(path).parent().expect("a parent")).expect("made");
            fs::write(scratch.at(path), "").expect("written");
        }
        fs::write(scratch.at(".gitignore"), "node_modules/\n").expect("written");
        assert_eq!(names(&scratch, "*.rs"), ["a.rs"]);
        assert_eq!(names(&scratch, "**/*.rs"), ["a.rs", "src/b.rs", "src/deep/c.rs"]);
        assert_eq!(names(&scratch, "src/*.{rs,ts}"), ["src/b.rs", "src/x.ts"]);
        assert_eq!(names(&scratch, ".*"), [".env", ".gitignore"]);
        assert_eq!(names(&scratch, &format!("{}/src/**/c.rs", scratch.root().display())), ["src/deep/c.rs"]);
        assert_eq!(fails("glob", &scratch, [("pattern", "".into())]).0, "invalid_argument");
        assert_eq!(
            fails("glob", &scratch, [("pattern", "*".into()), ("path", "none".into())]).0,
            "not_found"
        );
        let one = tool("glob", &scratch, [("pattern", "**".into()), ("limit", 2.into())]);
        assert_eq!(one.message("more"), Value::Bool(true));
        assert_eq!(one.message("shown"), Value::Int(2));
    }
}
