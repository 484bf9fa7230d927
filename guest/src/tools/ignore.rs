//! The rules of `.gitignore` and `.ignore` files.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::files::path::FilePath;
use crate::files::sys;

use super::glob_pattern::GlobPattern;

const LARGEST_FILE: usize = 256 * 1024;
const MOST_RULES: usize = 4000;
const MOST_LEVELS_ABOVE: usize = 64;

/// Directories of version control; nobody searches them.
pub const VERSION_CONTROL: [&[u8]; 5] = [b".git", b".hg", b".svn", b".jj", b".bzr"];

/// The rules of one directory, below those of the directories above it.
pub struct Layer {
    above: Option<Arc<Layer>>,
    rules: Vec<Rule>,
    place: Place,
}

/// Where the directory of the rules is.
enum Place {
    /// Below the root of the walk; the bytes of its path and the separator.
    Below(usize),
    /// Above it; the way from there to the root, with a separator at its end.
    Above(Vec<u8>),
}

struct Rule {
    negated: bool,
    directories: bool,
    pattern: Pattern,
}

enum Pattern {
    /// A name, wherever it is.
    Name(Vec<u8>),
    /// The end of a name, wherever it is.
    Suffix(Vec<u8>),
    /// A name, wherever it is.
    NameGlob(GlobPattern),
    /// A path from the directory of the rules.
    Path(GlobPattern),
}

impl Layer {
    /// The rules that hold for the whole of `root`: of it and of the directories above it, up to that of its
    /// repository. Without a repository those above do not matter.
    pub fn for_root(root: &FilePath) -> Option<Arc<Layer>> {
        let mut way: Vec<u8> = Vec::new();
        let mut found: Vec<(Vec<u8>, Vec<Rule>)> = Vec::new();
        let mut directory = root.clone();
        for _ in 0..MOST_LEVELS_ABOVE {
            let Ok(held) = directory.hold() else { break };
            let is_repository = sys::stat_at(held.as_raw_fd(), c".git", false).is_ok();
            if !way.is_empty() {
                let mut rules = read_rules(held.as_raw_fd(), c".gitignore");
                rules.extend(read_rules(held.as_raw_fd(), c".ignore"));
                found.push((way.clone(), rules));
            }
            if is_repository {
                let mut own = read_rules(held.as_raw_fd(), c".git/info/exclude");
                if !own.is_empty() {
                    own.extend(std::mem::take(found.last_mut().map_or(&mut Vec::new(), |(_, rules)| rules)));
                    if way.is_empty() {
                        found.push((way.clone(), own));
                    } else if let Some(last) = found.last_mut() {
                        last.1 = own;
                    }
                }
                let layers = found.into_iter().rev().filter(|(_, rules)| !rules.is_empty());
                return layers.fold(None, |above, (way, rules)| {
                    let place = if way.is_empty() { Place::Below(0) } else { Place::Above(way) };
                    Some(Arc::new(Layer { above, rules, place }))
                });
            }
            let Some((parent, name)) = directory.split() else { break };
            let mut longer = name.into_bytes();
            longer.push(b'/');
            longer.extend_from_slice(&way);
            way = longer;
            directory = parent;
        }
        None
    }

    /// Adds the rules of a directory that is walked. `path` is its path from the root of the walk.
    pub fn below(
        above: &Option<Arc<Layer>>,
        directory: RawFd,
        path: &[u8],
        files: &IgnoreFiles,
    ) -> Option<Arc<Layer>> {
        let mut rules = if files.git { read_rules(directory, c".gitignore") } else { Vec::new() };
        if files.plain {
            rules.extend(read_rules(directory, c".ignore"));
        }
        if rules.is_empty() {
            return above.clone();
        }
        let base = if path.is_empty() { 0 } else { path.len() + 1 };
        Some(Arc::new(Layer { above: above.clone(), rules, place: Place::Below(base) }))
    }

    /// Whether something below the root is ignored. What is above it is not.
    pub fn ignores(&self, path: &[u8], is_directory: bool) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut layer = Some(self);
        while let Some(one) = layer {
            if let Some(verdict) = one.verdict(path, name, is_directory) {
                return verdict;
            }
            layer = one.above.as_deref();
        }
        false
    }

    /// The last rule that matches decides.
    fn verdict(&self, path: &[u8], name: &[u8], is_directory: bool) -> Option<bool> {
        let joined: Vec<u8>;
        let path = match &self.place {
            Place::Below(base) => path.get(*base..)?,
            Place::Above(way) => {
                joined = [way.as_slice(), path].concat();
                &joined
            }
        };
        let decides = |rule: &&Rule| {
            (is_directory || !rule.directories)
                && match &rule.pattern {
                    Pattern::Name(exactly) => exactly == name,
                    Pattern::Suffix(suffix) => name.ends_with(suffix),
                    Pattern::NameGlob(glob) => glob.matches(name),
                    Pattern::Path(glob) => glob.matches(path),
                }
        };
        self.rules.iter().rev().find(decides).map(|rule| !rule.negated)
    }
}

/// Which files with rules a directory has.
#[derive(Clone, Copy, Default)]
pub struct IgnoreFiles {
    pub git: bool,
    pub plain: bool,
}

impl IgnoreFiles {
    /// Looks at one name of the directory.
    pub fn note(&mut self, name: &[u8]) {
        self.git |= name == b".gitignore";
        self.plain |= name == b".ignore";
    }

    pub fn any(self) -> bool {
        self.git || self.plain
    }
}

fn read_rules(directory: RawFd, name: &std::ffi::CStr) -> Vec<Rule> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
    let Ok(file) = sys::open_at(directory, name, flags, 0) else { return Vec::new() };
    parse(&read_start(&file))
}

fn read_start(file: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 16 * 1024];
    let mut filled = 0;
    while let Ok(read @ 1..) = sys::read_at(file, &mut bytes[filled..], filled as i64) {
        filled += read;
        if filled >= LARGEST_FILE {
            break;
        }
        if filled == bytes.len() {
            bytes.resize(bytes.len() * 2, 0);
        }
    }
    bytes.truncate(filled);
    bytes
}

fn parse(text: &[u8]) -> Vec<Rule> {
    let mut seen = HashSet::new();
    let lines = text.split(|byte| *byte == b'\n').take(MOST_RULES);
    let mut rules: Vec<Rule> = Vec::new();
    // The last of two lines that are the same decides.
    for line in lines.collect::<Vec<_>>().into_iter().rev() {
        if seen.insert(line) {
            rules.extend(parse_line(line));
        }
    }
    rules.reverse();
    rules
}

fn parse_line(line: &[u8]) -> Option<Rule> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut line = trim_end(line);
    if line.is_empty() || line[0] == b'#' {
        return None;
    }
    let negated = line[0] == b'!';
    if negated {
        line = &line[1..];
    }
    let directories = line.ends_with(b"/");
    if directories {
        line = &line[..line.len() - 1];
    }
    let rooted = line.starts_with(b"/");
    if rooted {
        line = &line[1..];
    }
    if line.is_empty() {
        return None;
    }
    let is_special = |byte: &u8| b"*?[\\".contains(byte);
    let pattern = if !rooted && !line.contains(&b'/') {
        match line {
            name if !name.iter().any(is_special) => Pattern::Name(name.to_vec()),
            [b'*', suffix @ ..] if !suffix.is_empty() && !suffix.iter().any(is_special) => {
                Pattern::Suffix(suffix.to_vec())
            }
            glob => Pattern::NameGlob(GlobPattern::plain(glob)?),
        }
    } else {
        Pattern::Path(GlobPattern::plain(line)?)
    };
    Some(Rule { negated, directories, pattern })
}

/// Spaces at the end do not count, unless there is a backslash before them.
fn trim_end(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = line {
        if rest.last() == Some(&b'\\') {
            break;
        }
        line = rest;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(rules: &str) -> Layer {
        Layer { above: None, rules: parse(rules.as_bytes()), place: Place::Below(0) }
    }

    #[test]
    fn rules_mean_what_git_says() {
        for (rules, path, is_directory, expected) in [
            ("node_modules", "a/node_modules", true, true),
            ("*.log", "a/b.log", false, true),
            ("*.log\n!keep.log", "keep.log", false, false),
            ("!keep.log\n*.log", "keep.log", false, true),
            ("/build", "build", true, true),
            ("/build", "a/build", true, false),
            ("a/b", "a/b", false, true),
            ("a/b", "x/a/b", false, false),
            ("tmp/", "tmp", false, false),
            ("tmp/", "x/tmp", true, true),
            ("**/foo", "a/b/foo", false, true),
            ("foo/**", "foo/a", false, true),
            ("a/**/b", "a/b", false, true),
            ("*.py[cod]", "x.pyc", false, true),
            ("\\#a", "#a", false, true),
            ("# a", "# a", false, false),
            ("a \t", "a", false, true),
            ("a\r\nb\r", "a", false, true),
            ("{a,b}", "a", false, false),
        ] {
            assert_eq!(
                layer(rules).ignores(path.as_bytes(), is_directory),
                expected,
                "{rules:?} {path:?} {is_directory}"
            );
        }
    }

    #[test]
    fn random_rules_never_panic() {
        let mut seed = 7u64;
        for _ in 0..50_000 {
            let mut bytes = [0u8; 10];
            for byte in &mut bytes {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = b"*!/\\[] a.\n#?"[(seed >> 40) as usize % 12];
            }
            let layer = Layer { above: None, rules: parse(&bytes), place: Place::Below(0) };
            layer.ignores(b"a/b.c", false);
            layer.ignores(b"", true);
        }
    }
}
