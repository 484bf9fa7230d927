//! Reads patches of the format of `apply_patch`:
//!
//! ```text
//! *** Begin Patch
//! *** Add File: path          then lines that begin with `+`
//! *** Delete File: path
//! *** Update File: path
//! *** Move to: path           optional
//! @@ a line before            optional
//!  context
//! -removed
//! +added
//! *** End of File             optional
//! *** End Patch
//! ```

use crate::files::sys::{invalid, shown};
use crate::task::Stopped;

const MOST_FILES: usize = 1000;

/// What a patch does to one file.
#[derive(Debug, PartialEq, Eq)]
pub enum FileChange<'a> {
    Add { path: &'a [u8], content: Vec<u8> },
    Delete { path: &'a [u8] },
    Update { path: &'a [u8], to: Option<&'a [u8]>, chunks: Vec<Chunk<'a>> },
}

/// Lines that are replaced together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The chunk is somewhere after this line.
    pub after: Option<&'a [u8]>,
    pub old: Vec<&'a [u8]>,
    /// The new lines. One that is kept has the index of its old line.
    pub new: Vec<(Option<usize>, &'a [u8])>,
    /// Its old lines are the last of the file.
    pub at_end: bool,
}

/// Reads the whole of a patch. Nothing is changed by one that cannot be read.
pub fn parse(patch: &[u8]) -> Result<Vec<FileChange<'_>>, Stopped> {
    let lines: Vec<&[u8]> = patch.trim_ascii().split(|byte| *byte == b'\n').map(without_return).collect();
    let lines = without_here_document(&lines);
    if lines.first().map(|line| line.trim_ascii()) != Some(b"*** Begin Patch") {
        return Err(invalid("The first line of a patch is \"*** Begin Patch\""));
    }
    if lines.len() < 2 || lines.last().map(|line| line.trim_ascii()) != Some(b"*** End Patch") {
        return Err(invalid("The last line of a patch is \"*** End Patch\""));
    }
    let mut reader = Reader { lines: &lines[..lines.len() - 1], at: 1 };
    let mut changes = Vec::new();
    while let Some(line) = reader.peek() {
        if line.trim_ascii().is_empty() && !changes.is_empty() {
            reader.at += 1;
            continue;
        }
        changes.push(reader.file()?);
        if changes.len() > MOST_FILES {
            return Err(invalid(format!("The patch changes more than {MOST_FILES} files")));
        }
    }
    if changes.is_empty() {
        return Err(invalid("The patch changes no file"));
    }
    Ok(changes)
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Models sometimes send what they would give to a shell.
fn without_here_document<'a, 'b>(lines: &'b [&'a [u8]]) -> &'b [&'a [u8]] {
    match lines {
        [first, inner @ .., last]
            if matches!(*first, b"<<EOF" | b"<<'EOF'" | b"<<\"EOF\"") && last.ends_with(b"EOF") =>
        {
            inner
        }
        _ => lines,
    }
}

struct Reader<'a, 'b> {
    lines: &'b [&'a [u8]],
    at: usize,
}

impl<'a> Reader<'a, '_> {
    fn peek(&self) -> Option<&'a [u8]> {
        self.lines.get(self.at).copied()
    }

    fn wrong(&self, why: &str) -> Stopped {
        let line = shown(self.peek().unwrap_or_default());
        invalid(format!("Line {} of the patch, \"{line}\", {why}", self.at + 1))
    }

    fn file(&mut self) -> Result<FileChange<'a>, Stopped> {
        let header = self.peek().unwrap_or_default().trim_ascii();
        let path = |prefix: &[u8]| header.strip_prefix(prefix).map(<[u8]>::trim_ascii);
        if let Some(path) = path(b"*** Add File:") {
            self.at += 1;
            return self.add(path);
        }
        if let Some(path) = path(b"*** Delete File:") {
            self.check_path(path)?;
            self.at += 1;
            return Ok(FileChange::Delete { path });
        }
        if let Some(path) = path(b"*** Update File:") {
            self.check_path(path)?;
            self.at += 1;
            return self.update(path);
        }
        Err(self.wrong(
            "is none of \"*** Add File: path\", \"*** Delete File: path\" and \"*** Update File: path\"",
        ))
    }

    fn check_path(&self, path: &[u8]) -> Result<(), Stopped> {
        if path.is_empty() { Err(self.wrong("has no path")) } else { Ok(()) }
    }

    fn add(&mut self, path: &'a [u8]) -> Result<FileChange<'a>, Stopped> {
        let mut content = Vec::new();
        while let Some([b'+', line @ ..]) = self.peek() {
            content.extend_from_slice(line);
            content.push(b'\n');
            self.at += 1;
        }
        self.check_path(path)?;
        Ok(FileChange::Add { path, content })
    }

    fn update(&mut self, path: &'a [u8]) -> Result<FileChange<'a>, Stopped> {
        let mut to = None;
        if let Some(line) = self.peek() {
            if let Some(path) = line.trim_ascii().strip_prefix(b"*** Move to:") {
                to = Some(path.trim_ascii());
                self.check_path(path.trim_ascii())?;
                self.at += 1;
            }
        }
        let mut chunks = Vec::new();
        while let Some(line) = self.peek() {
            if line.trim_ascii().is_empty() {
                self.at += 1;
                continue;
            }
            if line.starts_with(b"***") || line.trim_ascii().starts_with(b"*** ") && !line.starts_with(b" ") {
                break;
            }
            // A header that is padded with white space is still one.
            if is_header(line) {
                break;
            }
            chunks.push(self.chunk(chunks.is_empty())?);
        }
        if chunks.is_empty() {
            return Err(invalid(format!("The update of \"{}\" has no lines", shown(path))));
        }
        Ok(FileChange::Update { path, to, chunks })
    }

    fn chunk(&mut self, first: bool) -> Result<Chunk<'a>, Stopped> {
        let mut chunk = Chunk::default();
        let line = self.peek().unwrap_or_default();
        if line.trim_ascii() == b"@@" {
            self.at += 1;
        } else if let Some(after) = line.strip_prefix(b"@@ ") {
            chunk.after = Some(after);
            self.at += 1;
        } else if !first {
            return Err(self.wrong("does not begin a chunk; \"@@\" does"));
        }
        let begin = self.at;
        while let Some(line) = self.peek() {
            match line {
                b"*** End of File" => {
                    if self.at == begin {
                        return Err(self.wrong("comes before the lines of its chunk"));
                    }
                    chunk.at_end = true;
                    self.at += 1;
                    break;
                }
                [] => chunk.keep(b""),
                [b' ', rest @ ..] if !is_header(line) => chunk.keep(rest),
                [b'+', rest @ ..] => chunk.new.push((None, rest)),
                [b'-', rest @ ..] => chunk.old.push(rest),
                _ if self.at == begin => {
                    return Err(self.wrong("begins with none of \" \", \"+\" and \"-\""));
                }
                _ => break,
            }
            self.at += 1;
        }
        if self.at == begin {
            return Err(self.wrong("comes where the lines of a chunk are expected"));
        }
        Ok(chunk)
    }
}

impl<'a> Chunk<'a> {
    fn keep(&mut self, line: &'a [u8]) {
        self.new.push((Some(self.old.len()), line));
        self.old.push(line);
    }
}

fn is_header(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    [&b"*** Add File:"[..], b"*** Delete File:", b"*** Update File:"]
        .iter()
        .any(|header| line.starts_with(header))
}
