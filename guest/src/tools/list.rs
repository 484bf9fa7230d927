//! `list`: the names in a directory, and with `depth` below it.

use crate::files::sys::{self, Doing};
use crate::files::walk::{Step, Walk};
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::grep::parse_glob;
use super::ignore::VERSION_CONTROL;
use super::{Bounds, Over, count, path_of, texts};

const DEFAULT_LIMIT: usize = 1000;
const MOST_LIMIT: usize = 20_000;
const DEEPEST: usize = 64;
const LARGEST_ANSWER: usize = 256 * 1024;

/// Answers `MESSAGE {entries, more, late}` and the names as DATA, one on a line, with `/` behind directories
/// and ` -> target` behind symlinks. Directories of version control are not entered.
pub fn list(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let bounds = Bounds::of(request, stream)?;
    let path = path_of(request, "path")?;
    let depth = count(request, "depth", 1)?.clamp(1, DEEPEST);
    let limit = match count(request, "limit", DEFAULT_LIMIT)? {
        0 => MOST_LIMIT,
        limit => limit.min(MOST_LIMIT),
    };
    let ignore =
        texts(request, "ignore")?.iter().map(|glob| parse_glob(glob)).collect::<Result<Vec<_>, _>>()?;
    let root = sys::open(&path.c(), libc::O_RDONLY | libc::O_DIRECTORY, 0).doing("list", path.bytes())?;
    let mut walk = Walk::new(root, b"").doing("list", path.bytes())?;
    let mut text = Vec::new();
    let (mut entries, mut looked_at) = (0, 0usize);
    let (mut more, mut late) = (false, false);
    while let Some(step) = walk.step().doing("list", path.bytes())? {
        if step == Step::Left {
            continue;
        }
        looked_at += 1;
        if looked_at.is_multiple_of(256) {
            match bounds.over() {
                Some(Over::Gone) => return Err(Stopped::Gone),
                Some(Over::Late) => {
                    late = true;
                    break;
                }
                None => {}
            }
        }
        let name = walk.name().to_bytes();
        let matches = |glob: &super::glob_pattern::GlobPattern| {
            glob.matches(if glob.has_separator() { walk.path() } else { name })
        };
        if ignore.iter().any(matches) {
            continue;
        }
        let Ok(stat) = sys::stat_at(walk.directory(), walk.name(), false) else { continue };
        if entries == limit || text.len() >= LARGEST_ANSWER {
            more = true;
            break;
        }
        entries += 1;
        text.extend_from_slice(walk.path());
        match sys::kind(&stat) {
            libc::S_IFDIR => text.push(b'/'),
            libc::S_IFLNK => {
                text.extend_from_slice(b" -> ");
                text.extend_from_slice(&sys::read_link_at(walk.directory(), walk.name()).unwrap_or_default());
            }
            _ => {}
        }
        text.push(b'\n');
        let enters = sys::kind(&stat) == libc::S_IFDIR && walk.depth() < depth;
        if enters && !VERSION_CONTROL.contains(&name) {
            // One that may not be read, or that has gone, is listed without what is in it.
            let _ = walk.enter();
        }
    }
    stream.send(&Value::map([
        ("entries", (entries as i64).into()),
        ("more", more.into()),
        ("late", late.into()),
    ]))?;
    stream.send_data(&text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::testing::{Scratch, fails, text, tool};
    use super::*;

    #[test]
    fn names_come_in_order_with_their_kind() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("b/c")).expect("made");
        fs::create_dir_all(scratch.at(".git/objects")).expect("made");
        for name in ["a", "b/x", "b/c/y"] {
            fs::write(scratch.at(name), "").expect("written");
        }
        symlink("a", scratch.at("link")).expect("linked");
        assert_eq!(text(&tool("list", &scratch, [])), ".git/\na\nb/\nlink -> a\n");
        let deep = tool("list", &scratch, [("depth", 3.into()), ("ignore", "x".into())]);
        assert_eq!(text(&deep), ".git/\na\nb/\nb/c/\nb/c/y\nlink -> a\n");
        let few = tool("list", &scratch, [("limit", 2.into())]);
        assert_eq!(text(&few), ".git/\na\n");
        assert_eq!(few.message("more"), Value::Bool(true));
        assert_eq!(fails("list", &scratch, [("path", "a".into())]).0, "invalid_argument");
        assert_eq!(fails("list", &scratch, [("path", "none".into())]).0, "not_found");
    }
}
