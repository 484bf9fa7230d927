//! `apply_patch`: adds, deletes, changes and moves files as a patch says.

use crate::failure::Failure;
use crate::files::sys::shown;
use crate::task::{Stopped, TaskStream};
use crate::value::Value;

use super::contents::{self, Contents};
use super::patch::{self, FileChange};
use super::patch_lines::updated;
use super::{Bounds, Over, below};

/// Answers `MESSAGE {added, modified, deleted}`, each the paths as the patch has them.
///
/// The files are changed one after the other. What was changed before one that fails stays: the failure's
/// `details` have the same three lists.
pub fn apply_patch(request: &Value, stream: &mut dyn TaskStream) -> Result<(), Stopped> {
    let bounds = Bounds::of(request, stream)?;
    let text = request.bytes("patch").unwrap_or_default();
    let changes = patch::parse(text)?;
    let mut done = Done::default();
    for change in &changes {
        match bounds.over() {
            Some(Over::Gone) => return Err(Stopped::Gone),
            Some(Over::Late) => {
                return Err(
                    done.with_changes(Failure::new("deadline_exceeded", "The patch took too long").into())
                );
            }
            None => {}
        }
        if let Err(failure) = apply(request, change, &mut done, stream) {
            return Err(done.with_changes(failure));
        }
    }
    stream.send(&done.value())
}

#[derive(Default)]
struct Done {
    added: Vec<Value>,
    modified: Vec<Value>,
    deleted: Vec<Value>,
}

impl Done {
    fn value(&self) -> Value {
        Value::map([
            ("added", Value::Array(self.added.clone())),
            ("modified", Value::Array(self.modified.clone())),
            ("deleted", Value::Array(self.deleted.clone())),
        ])
    }

    fn with_changes(&self, stopped: Stopped) -> Stopped {
        match stopped {
            Stopped::Failed(failure) => failure
                .with("added", Value::Array(self.added.clone()))
                .with("modified", Value::Array(self.modified.clone()))
                .with("deleted", Value::Array(self.deleted.clone()))
                .into(),
            gone => gone,
        }
    }
}

fn apply(
    request: &Value,
    change: &FileChange<'_>,
    done: &mut Done,
    stream: &dyn TaskStream,
) -> Result<(), Stopped> {
    match change {
        FileChange::Add { path, content } => {
            contents::write(&below(request, path)?, content, request, stream)?;
            done.added.push(Value::Text(shown(path)));
        }
        FileChange::Delete { path } => {
            contents::remove(&below(request, path)?)?;
            done.deleted.push(Value::Text(shown(path)));
        }
        FileChange::Update { path, to, chunks } => {
            let file = below(request, path)?;
            let before = Contents::read(&file, "update")?;
            let bytes = updated(&before.bytes, chunks, path)?;
            match to {
                Some(to) => {
                    let target = below(request, to)?;
                    contents::write(&target, &bytes, request, stream)?;
                    if target != file {
                        contents::remove(&file)?;
                    }
                    done.modified.push(Value::Text(shown(to)));
                }
                None => {
                    before.replace(&file, &bytes, request, stream)?;
                    done.modified.push(Value::Text(shown(path)));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "apply_patch_tests.rs"]
mod tests;
