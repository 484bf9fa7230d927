//! The behaviour that models expect of `apply_patch`, case by case.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::super::testing::{Scratch, TestStream, fails, request};
use super::*;

type Files<'a> = &'a [(&'a str, &'a str)];

fn scratch(files: Files<'_>) -> Scratch {
    let scratch = Scratch::new();
    for (path, content) in files {
        fs::create_dir_all(scratch.at(path).parent().expect("a parent")).expect("made");
        fs::write(scratch.at(path), content).expect("written");
    }
    scratch
}

fn contents(scratch: &Scratch) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![scratch.root().to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(scratch.root()).expect("below").display().to_string();
                found.insert(name, fs::read_to_string(&path).expect("text"));
            }
        }
    }
    found
}

fn run(scratch: &Scratch, patch: &str) -> Result<(), (&'static str, String)> {
    match super::super::run(
        &request("apply_patch", scratch, [("patch", patch.into())]),
        &mut TestStream::new(),
    ) {
        Ok(()) => Ok(()),
        Err(Stopped::Failed(failure)) => Err((failure.code, failure.message)),
        Err(gone) => panic!("{gone:?}"),
    }
}

/// One case: files before, the patch between its markers, files after.
fn case(name: &str, before: Files<'_>, patch: &str, after: Files<'_>, fails: bool) {
    let scratch = scratch(before);
    let whole = if patch.contains("Begin Patch") {
        patch.to_owned()
    } else {
        format!("*** Begin Patch\n{patch}*** End Patch\n")
    };
    let result = run(&scratch, &whole);
    assert_eq!(result.is_err(), fails, "{name}: {result:?}");
    let after: BTreeMap<String, String> =
        after.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect();
    assert_eq!(contents(&scratch), after, "{name}");
}

#[test]
fn files_are_added_deleted_and_moved() {
    case("add", &[], "*** Add File: new.md\n+# Title\n+\n+text\n", &[("new.md", "# Title\n\ntext\n")], false);
    case(
        "several operations",
        &[("change.txt", "first\nsecond\n"), ("old.txt", "x\n")],
        "*** Add File: deep/er/new.txt\n+made\n*** Delete File: old.txt\n*** Update File: change.txt\n@@\n-second\n+other\n",
        &[("change.txt", "first\nother\n"), ("deep/er/new.txt", "made\n")],
        false,
    );
    case(
        "delete",
        &[("keep.txt", "k\n"), ("gone.txt", "g\n")],
        "*** Delete File: gone.txt\n",
        &[("keep.txt", "k\n")],
        false,
    );
    case(
        "move into a new directory",
        &[("from/name.txt", "before\n"), ("from/stays.txt", "s\n")],
        "*** Update File: from/name.txt\n*** Move to: to/there/name.txt\n@@\n-before\n+after\n",
        &[("from/stays.txt", "s\n"), ("to/there/name.txt", "after\n")],
        false,
    );
    case(
        "a move overwrites",
        &[("a.txt", "before\n"), ("b.txt", "in the way\n")],
        "*** Update File: a.txt\n*** Move to: b.txt\n@@\n-before\n+after\n",
        &[("b.txt", "after\n")],
        false,
    );
    case(
        "an addition overwrites",
        &[("a.txt", "old\n")],
        "*** Add File: a.txt\n+new\n",
        &[("a.txt", "new\n")],
        false,
    );
}

#[test]
fn chunks_are_found_in_order() {
    case(
        "several chunks",
        &[("f", "1\n2\n3\n4\n5\n6\n")],
        "*** Update File: f\n@@\n-2\n+two\n@@\n-5\n+five\n",
        &[("f", "1\ntwo\n3\n4\nfive\n6\n")],
        false,
    );
    case(
        "a context line in the header",
        &[("f", "def a():\n    x = 1\ndef b():\n    x = 1\n")],
        "*** Update File: f\n@@ def b():\n-    x = 1\n+    x = 2\n",
        &[("f", "def a():\n    x = 1\ndef b():\n    x = 2\n")],
        false,
    );
    case(
        "the first chunk needs no header",
        &[("f", "a\nb\n")],
        "*** Update File: f\n a\n-b\n+c\n",
        &[("f", "a\nc\n")],
        false,
    );
    case(
        "lines that are only added come at the end",
        &[("f", "a\nb\n")],
        "*** Update File: f\n@@\n+c\n+d\n",
        &[("f", "a\nb\nc\nd\n")],
        false,
    );
    case(
        "lines that are only removed",
        &[("f", "a\nb\nc\n")],
        "*** Update File: f\n@@\n a\n-b\n c\n",
        &[("f", "a\nc\n")],
        false,
    );
    case(
        "the end of the file",
        &[("f", "x\ny\nx\n")],
        "*** Update File: f\n@@\n-x\n+z\n*** End of File\n",
        &[("f", "x\ny\nz\n")],
        false,
    );
    case(
        "a missing line break at the end is made",
        &[("f", "no break")],
        "*** Update File: f\n@@\n-no break\n+one\n+two\n",
        &[("f", "one\ntwo\n")],
        false,
    );
    case(
        "an empty line stands for itself",
        &[("f", "a\n\nb\n")],
        "*** Update File: f\n@@\n a\n\n-b\n+c\n",
        &[("f", "a\n\nc\n")],
        false,
    );
}

#[test]
fn white_space_and_typographic_signs_are_forgiven() {
    case(
        "a padded header",
        &[("f", "old\n")],
        "  *** Update File: f  \n@@\n-old\n+new\n",
        &[("f", "new\n")],
        false,
    );
    case(
        "padded markers",
        &[("f", "old\n")],
        "  *** Begin Patch \n*** Update File: f\n@@\n-old\n+new\n\t*** End Patch  ",
        &[("f", "new\n")],
        false,
    );
    case(
        "padded markers within white space",
        &[("f", "old\n")],
        "\n\n *** Begin Patch\n*** Update File: f\n@@\n-old\n+new\n*** End Patch \n\n",
        &[("f", "new\n")],
        false,
    );
    case(
        "other white space",
        &[("f", "\tindented  \nnext\n")],
        "*** Update File: f\n@@\n-indented\n+done\n next\n",
        &[("f", "done\nnext\n")],
        false,
    );
    case(
        "letters beyond ASCII",
        &[("f", "grün\nnaïve café\n")],
        "*** Update File: f\n@@\n-naïve café\n+naïve café ✓\n",
        &[("f", "grün\nnaïve café ✓\n")],
        false,
    );
    case(
        "dashes and quotes",
        &[("f", "a – “b”\n")],
        "*** Update File: f\n@@\n-a - \"b\"\n+c\n",
        &[("f", "c\n")],
        false,
    );
    case(
        "a here document",
        &[("f", "old\n")],
        "<<'EOF'\n*** Begin Patch\n*** Update File: f\n@@\n-old\n+new\n*** End Patch\nEOF\n",
        &[("f", "new\n")],
        false,
    );
}

#[test]
fn line_endings_stay() {
    case(
        "carriage returns",
        &[("f", "a\r\nb\r\nc\r\n")],
        "*** Update File: f\n@@\n a\n-b\n+x\n+y\n",
        &[("f", "a\r\nx\r\ny\r\nc\r\n")],
        false,
    );
    case(
        "mixed endings",
        &[("f", "a\nb\r\nc\nd\r\n")],
        "*** Update File: f\n@@\n b\n-c\n+x\n d\n",
        &[("f", "a\nb\r\nx\nd\r\n")],
        false,
    );
    case(
        "a patch with carriage returns",
        &[("f", "a\nb\n")],
        "*** Begin Patch\r\n*** Update File: f\r\n@@\r\n-b\r\n+c\r\n*** End Patch\r\n",
        &[("f", "a\nc\n")],
        false,
    );
}

#[test]
fn what_is_wrong_is_refused() {
    let file: Files<'_> = &[("foo.txt", "stable\n")];
    case("an empty patch", file, "", file, true);
    case("a missing line", file, "*** Update File: foo.txt\n@@\n-not there\n+x\n", file, true);
    case("a missing context", file, "*** Update File: foo.txt\n@@ nowhere\n-stable\n+x\n", file, true);
    case("a missing file", file, "*** Delete File: none.txt\n", file, true);
    case("an update without lines", file, "*** Update File: foo.txt\n", file, true);
    case("an update of a missing file", file, "*** Update File: none.txt\n@@\n-a\n+b\n", file, true);
    let directory: Files<'_> = &[("dir/foo.txt", "stable\n")];
    case("a directory", directory, "*** Delete File: dir\n", directory, true);
    case("an unknown header", file, "*** Frobnicate File: foo.txt\n", file, true);
    case("no markers", file, "*** Begin Patch\n*** Delete File: foo.txt\n", file, true);
    case(
        "what was done before a failure stays",
        &[],
        "*** Add File: made.txt\n+made\n*** Update File: none.txt\n@@\n-a\n+b\n",
        &[("made.txt", "made\n")],
        true,
    );
}

#[test]
fn modes_stay_and_lists_say_what_was_done() {
    let scratch = scratch(&[("run.sh", "a\n"), ("x", "x\n")]);
    fs::set_permissions(scratch.at("run.sh"), fs::Permissions::from_mode(0o755)).expect("changed");
    let mut stream = TestStream::new();
    let patch = "*** Begin Patch\n*** Update File: run.sh\n@@\n-a\n+b\n*** Add File: n\n+n\n*** Delete File: x\n*** End Patch";
    let request = request("apply_patch", &scratch, [("patch", patch.into())]);
    super::super::run(&request, &mut stream).expect("applied");
    assert_eq!(fs::metadata(scratch.at("run.sh")).expect("there").permissions().mode() & 0o777, 0o755);
    let messages = stream.messages.lock().expect("not poisoned");
    assert_eq!(messages[0].get("modified"), Some(&Value::Array(vec!["run.sh".into()])));
    assert_eq!(messages[0].get("added"), Some(&Value::Array(vec!["n".into()])));
    assert_eq!(messages[0].get("deleted"), Some(&Value::Array(vec!["x".into()])));
}

#[test]
fn hostile_patches_never_panic() {
    let scratch = scratch(&[("f", "a\nb\nc\n")]);
    let pieces = [
        "*** Begin Patch",
        "*** End Patch",
        "*** Add File: f",
        "*** Delete File: f",
        "*** Update File: f",
        "*** Move to: g",
        "*** End of File",
        "@@",
        "@@ a",
        " a",
        "-b",
        "+c",
        "",
        "***",
        "*** Update File:",
    ];
    let mut seed = 99u64;
    for _ in 0..3000 {
        let mut patch = String::from("*** Begin Patch\n");
        for _ in 0..10 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            patch.push_str(pieces[(seed >> 40) as usize % pieces.len()]);
            patch.push('\n');
        }
        patch.push_str("*** End Patch\n");
        let _ = run(&scratch, &patch);
    }
    assert_eq!(fails("apply_patch", &scratch, []).0, "invalid_argument");
    assert_eq!(
        fails("apply_patch", &scratch, [("patch", Value::Bytes(vec![0xff; 100]))]).0,
        "invalid_argument"
    );
}
