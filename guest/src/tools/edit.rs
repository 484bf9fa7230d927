//! `edit` and `multi_edit`: replace text that occurs exactly once, or everywhere.

use memchr::memmem;

use crate::failure::Failure;
use crate::files::path::FilePath;
use crate::files::sys::{self, Doing, invalid, shown};
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::contents::{self, Contents, LARGEST};
use super::path_of;

const MOST_EDITS: usize = 200;
/// Line numbers that a message names.
const NAMED: usize = 20;
/// Lines around a change that the answer shows.
const AROUND: usize = 4;
const LARGEST_SNIPPET: usize = 8 * 1024;

struct Change<'a> {
    old: &'a [u8],
    new: &'a [u8],
    all: bool,
}

/// Answers `MESSAGE {replacements, lines, created}` and as DATA the lines around the first change.
pub fn edit(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    apply(request, &[change(request)?], stream)
}

/// The same with several changes, each on what the one before made. All are made or none.
pub fn multi_edit(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let Some(Value::Array(edits)) = request.get("edits") else {
        return Err(invalid("The request has no \"edits\""));
    };
    if edits.is_empty() || edits.len() > MOST_EDITS {
        return Err(invalid(format!("There are 1 to {MOST_EDITS} edits")));
    }
    apply(request, &edits.iter().map(change).collect::<Result<Vec<_>, _>>()?, stream)
}

fn change(edit: &Value) -> Result<Change<'_>, Stopped> {
    let text = |key| edit.bytes(key).ok_or_else(|| invalid(format!("An edit has no \"{key}\"")));
    let change = Change { old: text("old")?, new: text("new")?, all: edit.flag("all") };
    if change.old == change.new {
        return Err(invalid("The old text and the new text are the same"));
    }
    Ok(change)
}

fn apply(request: &Value, changes: &[Change<'_>], stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let path = path_of(request, "path")?;
    let first = &changes[0];
    // An empty old text makes a file.
    if first.old.is_empty() {
        return create(request, &path, changes, stream);
    }
    let before = Contents::read(&path, "edit")?;
    let (bytes, done) = all(&before.bytes, changes, &path)?;
    before.replace(&path, &bytes, request, stream)?;
    answer(&bytes, &done, false, stream)
}

fn create(
    request: &Value,
    path: &FilePath,
    changes: &[Change<'_>],
    stream: &mut dyn TaskStream,
) -> Result<(), Stopped> {
    match path.stat(true) {
        Ok(stat) if sys::kind(&stat) == libc::S_IFREG && stat.st_size == 0 => {}
        Ok(_) => {
            return Err(Failure::new(
                "already_exists",
                format!(
                    "Cannot make \"{}\": it exists, and an empty old text stands for a new file",
                    shown(path.bytes())
                ),
            )
            .into());
        }
        Err(error) if sys::is(&error, libc::ENOENT) => {}
        Err(error) => return Err(error).doing("edit", path.bytes()),
    }
    let (bytes, mut done) = all(changes[0].new, &changes[1..], path)?;
    done.insert(0, 0);
    contents::write(path, &bytes, request, stream)?;
    answer(&bytes, &done, true, stream)
}

/// The changed bytes, and where in them each replacement begins, as far as later changes did not move it.
fn all(bytes: &[u8], changes: &[Change<'_>], path: &FilePath) -> Result<(Vec<u8>, Vec<usize>), Stopped> {
    let mut bytes = bytes.to_vec();
    let mut places = Vec::new();
    let many = changes.len() > 1;
    for (index, change) in changes.iter().enumerate() {
        let (changed, at) = one(&bytes, change).map_err(|why| {
            why.failure(path, if many { Some(index + 1) } else { None }, &bytes, change.old)
        })?;
        if changed.len() > LARGEST {
            return Err(invalid(format!("The file would have more than {LARGEST} bytes")));
        }
        bytes = changed;
        places.extend(at);
    }
    Ok((bytes, places))
}

enum Unchanged {
    Missing,
    Empty,
    Ambiguous(Vec<usize>),
}

fn one(bytes: &[u8], change: &Change<'_>) -> Result<(Vec<u8>, Vec<usize>), Unchanged> {
    if change.old.is_empty() {
        return Err(Unchanged::Empty);
    }
    let mut places: Vec<usize> = memmem::find_iter(bytes, change.old).collect();
    let (mut old, mut new) = (change.old.to_vec(), change.new.to_vec());
    // Callers see lines without their carriage returns. A file that has them keeps them.
    if places.is_empty() && !change.old.contains(&b'\r') && memmem::find(bytes, b"\r\n").is_some() {
        old = with_returns(change.old);
        new = with_returns(change.new);
        places = memmem::find_iter(bytes, &old).collect();
    }
    match places.len() {
        0 => return Err(Unchanged::Missing),
        1 => {}
        _ if change.all => {}
        _ => return Err(Unchanged::Ambiguous(places)),
    }
    let mut changed = Vec::with_capacity(bytes.len() + new.len());
    let mut at = 0;
    let mut made = Vec::with_capacity(places.len());
    for place in places {
        changed.extend_from_slice(&bytes[at..place]);
        made.push(changed.len());
        changed.extend_from_slice(&new);
        at = place + old.len();
        if changed.len() > LARGEST {
            break;
        }
    }
    changed.extend_from_slice(&bytes[at..]);
    Ok((changed, made))
}

/// Every line break with a carriage return before it.
fn with_returns(text: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(text.len() + 16);
    for (index, byte) in text.iter().enumerate() {
        if *byte == b'\n' && (index == 0 || text[index - 1] != b'\r') {
            whole.push(b'\r');
        }
        whole.push(*byte);
    }
    whole
}

impl Unchanged {
    fn failure(self, path: &FilePath, edit: Option<usize>, bytes: &[u8], old: &[u8]) -> Stopped {
        let which = edit.map_or(String::new(), |edit| format!("edit {edit}: "));
        let path = shown(path.bytes());
        let failure = match self {
            Unchanged::Empty => Failure::new(
                "invalid_argument",
                format!("Cannot edit \"{path}\": {which}the old text is empty"),
            ),
            Unchanged::Missing => {
                let near = nearly(bytes, old);
                let hint = near.map_or(String::new(), |line| {
                    format!("; line {line} has the same text with other white space")
                });
                let failure = Failure::new(
                    "failed_precondition",
                    format!("Cannot edit \"{path}\": {which}the old text does not occur in it{hint}"),
                );
                match near {
                    Some(line) => failure.with("line", line as i64),
                    None => failure,
                }
            }
            Unchanged::Ambiguous(places) => {
                let count = places.len();
                let lines = line_numbers(bytes, &places[..count.min(NAMED)]);
                let named: Vec<String> = lines.iter().map(ToString::to_string).collect();
                let more = if count > NAMED { " and more" } else { "" };
                Failure::new(
                    "failed_precondition",
                    format!(
                        "Cannot edit \"{path}\": {which}the old text occurs {count} times, on lines {}{more}",
                        named.join(", ")
                    ),
                )
                .with("lines", Value::Array(lines.into_iter().map(|line| Value::Int(line as i64)).collect()))
                .with("occurrences", count as i64)
            }
        };
        Stopped::Failed(match edit {
            Some(edit) => failure.with("edit", edit as i64),
            None => failure,
        })
    }
}

/// The line whose text is that of the first line of `old` but for white space.
fn nearly(bytes: &[u8], old: &[u8]) -> Option<usize> {
    let first = old.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty())?;
    bytes.split(|byte| *byte == b'\n').position(|line| line.trim_ascii() == first).map(|index| index + 1)
}

fn line_numbers(bytes: &[u8], places: &[usize]) -> Vec<usize> {
    let (mut at, mut line) = (0, 1);
    let number = |place: &usize| {
        let place = (*place).min(bytes.len());
        if place < at {
            (at, line) = (0, 1);
        }
        line += memchr::memchr_iter(b'\n', &bytes[at..place]).count();
        at = place;
        line
    };
    places.iter().map(number).collect()
}

fn answer(bytes: &[u8], places: &[usize], created: bool, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let lines = line_numbers(bytes, &places[..places.len().min(NAMED)]);
    let from = lines.first().map_or(1, |line| line.saturating_sub(AROUND).max(1));
    let mut snippet = Vec::new();
    for (index, line) in
        bytes.split_inclusive(|byte| *byte == b'\n').enumerate().skip(from - 1).take(2 * AROUND + 1)
    {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        snippet.extend_from_slice(format!("{:>6}\t", index + 1).as_bytes());
        snippet.extend_from_slice(&line[..line.len().min(500)]);
        snippet.push(b'\n');
        if snippet.len() > LARGEST_SNIPPET {
            break;
        }
    }
    stream.send(&Value::map([
        ("replacements", (places.len() as i64).into()),
        ("lines", Value::Array(lines.into_iter().map(|line| Value::Int(line as i64)).collect())),
        ("created", created.into()),
    ]))?;
    stream.send_data(&snippet)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::testing::{Scratch, as_user, fails, text, tool};
    use super::*;

    fn edit_of(old: &str, new: &str) -> Value {
        Value::map([("old", old.into()), ("new", new.into())])
    }

    #[test]
    fn one_occurrence_is_replaced_and_shown() {
        let scratch = Scratch::new();
        fs::write(scratch.at("f"), "one\ntwo\nthree\n").expect("written");
        fs::set_permissions(scratch.at("f"), fs::Permissions::from_mode(0o750)).expect("changed");
        symlink("f", scratch.at("link")).expect("linked");
        let stream =
            tool("edit", &scratch, [("path", "link".into()), ("old", "two".into()), ("new", "2".into())]);
        assert_eq!(fs::read_to_string(scratch.at("f")).expect("read"), "one\n2\nthree\n");
        assert_eq!(fs::metadata(scratch.at("f")).expect("there").permissions().mode() & 0o777, 0o750);
        assert!(fs::symlink_metadata(scratch.at("link")).expect("there").is_symlink());
        assert_eq!(text(&stream), "     1\tone\n     2\t2\n     3\tthree\n");
        assert_eq!(stream.message("replacements"), Value::Int(1));
        assert_eq!(scratch.names(""), ["f", "link"]);
    }

    #[test]
    fn what_is_ambiguous_is_refused_with_line_numbers() {
        let scratch = Scratch::new();
        fs::write(scratch.at("f"), "x = 1\ny\nx = 1\n\nx = 1\n").expect("written");
        let request = [("path", "f".into()), ("old", "x = 1".into()), ("new", "x = 2".into())];
        let (code, message) = fails("edit", &scratch, request.clone());
        assert_eq!(code, "failed_precondition");
        assert!(message.ends_with("occurs 3 times, on lines 1, 3, 5"), "{message}");
        let [path, old, new] = request;
        let all = tool("edit", &scratch, [path, old, new, ("all", true.into())]);
        assert_eq!(all.message("replacements"), Value::Int(3));
        assert_eq!(fs::read_to_string(scratch.at("f")).expect("read"), "x = 2\ny\nx = 2\n\nx = 2\n");
        let (_, near) =
            fails("edit", &scratch, [("path", "f".into()), ("old", "  y\n".into()), ("new", "z".into())]);
        assert!(near.ends_with("line 2 has the same text with other white space"), "{near}");
    }

    #[test]
    fn carriage_returns_stay() {
        let scratch = Scratch::new();
        fs::write(scratch.at("f"), "a\r\nb\r\nc\r\n").expect("written");
        tool("edit", &scratch, [("path", "f".into()), ("old", "a\nb".into()), ("new", "a\nx\nb".into())]);
        assert_eq!(fs::read(scratch.at("f")).expect("read"), b"a\r\nx\r\nb\r\nc\r\n");
    }

    #[test]
    fn an_empty_old_text_makes_a_file_and_never_overwrites_one() {
        let scratch = Scratch::new();
        let request = [("path", "new/f".into()), ("old", "".into()), ("new", "content".into())];
        assert_eq!(tool("edit", &scratch, request.clone()).message("created"), Value::Bool(true));
        assert_eq!(fs::read_to_string(scratch.at("new/f")).expect("read"), "content");
        assert_eq!(fails("edit", &scratch, request).0, "already_exists");
    }

    #[test]
    fn several_edits_are_made_or_none() {
        let scratch = Scratch::new();
        fs::write(scratch.at("f"), "one two three").expect("written");
        let edits =
            |last: &str| Value::Array(vec![edit_of("one", "1"), edit_of("1 two", "2"), edit_of(last, "3")]);
        let (code, message) =
            fails("multi_edit", &scratch, [("path", "f".into()), ("edits", edits("missing"))]);
        assert_eq!(code, "failed_precondition");
        assert!(message.contains("edit 3: "), "{message}");
        assert_eq!(fs::read_to_string(scratch.at("f")).expect("read"), "one two three");
        tool("multi_edit", &scratch, [("path", "f".into()), ("edits", edits("three"))]);
        assert_eq!(fs::read_to_string(scratch.at("f")).expect("read"), "2 3");
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let scratch = Scratch::new();
        fs::write(scratch.at("f"), b"\xff\0 old \xfe").expect("written");
        tool("edit", &scratch, [("path", "f".into()), ("old", "old".into()), ("new", "new".into())]);
        assert_eq!(fs::read(scratch.at("f")).expect("read"), b"\xff\0 new \xfe");
    }

    #[test]
    fn huge_files_foreign_files_and_senseless_edits_are_refused() {
        let scratch = Scratch::new();
        let file = fs::File::create(scratch.at("huge")).expect("created");
        file.set_len(1 << 30).expect("set");
        let edit = |path: &str, old: &str, new: &str| {
            fails("edit", &scratch, [("path", path.into()), ("old", old.into()), ("new", new.into())]).0
        };
        assert_eq!(edit("huge", "a", "b"), "invalid_argument");
        assert_eq!(edit("none", "a", "b"), "not_found");
        assert_eq!(edit("huge", "a", "a"), "invalid_argument");
        assert_eq!(edit("", "a", "b"), "invalid_argument");
        fs::write(scratch.at("a"), "a".repeat(1 << 20)).expect("written");
        let long = "b".repeat(64);
        let request =
            [("path", "a".into()), ("old", "a".into()), ("new", long.as_str().into()), ("all", true.into())];
        assert_eq!(fails("edit", &scratch, request).0, "invalid_argument");
        fs::write(scratch.at("foreign"), "a").expect("written");
        as_user(4321, || assert_eq!(edit("foreign", "a", "b"), "permission_denied"));
    }
}
