use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use super::super::testing::{Scratch, TestStream, as_user, fails, text, tool};
use super::*;

fn scratch(files: &[(&str, &[u8])]) -> Scratch {
    let scratch = Scratch::new();
    for (path, content) in files {
        fs::create_dir_all(scratch.at(path).parent().expect("a parent")).expect("made");
        fs::write(scratch.at(path), content).expect("written");
    }
    scratch
}

fn shown(scratch: &Scratch, stream: &TestStream) -> String {
    text(stream).replace(&format!("{}/", scratch.root().display()), "")
}

fn content(scratch: &Scratch, pattern: &str) -> String {
    shown(scratch, &tool("grep", scratch, [("pattern", pattern.into()), ("mode", "content".into())]))
}

#[test]
fn lines_have_paths_and_numbers_and_come_by_path() {
    let scratch =
        scratch(&[("b.txt", b"one\ntwo\r\nthree two\n"), ("a/a.txt", b"two"), ("c.txt", b"none\n")]);
    assert_eq!(content(&scratch, "two"), "a/a.txt:1:two\nb.txt:2:two\nb.txt:3:three two\n");
    assert_eq!(content(&scratch, "^two$"), "a/a.txt:1:two\n");
    let count = tool("grep", &scratch, [("pattern", "two".into()), ("mode", "count".into())]);
    assert_eq!(shown(&scratch, &count), "a/a.txt:1\nb.txt:2\n");
    assert_eq!(count.message("matches"), Value::Int(3));
    let any = tool("grep", &scratch, [("pattern", "TWO".into()), ("ignoreCase", true.into())]);
    assert_eq!(any.message("files"), Value::Int(2));
    let only = tool(
        "grep",
        &scratch,
        [("pattern", "t.".into()), ("mode", "content".into()), ("onlyMatching", true.into())],
    );
    assert_eq!(shown(&scratch, &only), "a/a.txt:1:tw\nb.txt:2:tw\nb.txt:3:th\nb.txt:3:tw\n");
}

#[test]
fn the_newest_files_come_first() {
    let scratch = scratch(&[("old", b"x"), ("new", b"x"), ("middle", b"x")]);
    for (name, age) in [("old", 300), ("middle", 200), ("new", 100)] {
        let file = fs::File::options().write(true).open(scratch.at(name)).expect("opened");
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).expect("set");
    }
    let stream = tool("grep", &scratch, [("pattern", "x".into())]);
    assert_eq!(shown(&scratch, &stream), "new\nmiddle\nold\n");
    let second = tool("grep", &scratch, [("pattern", "x".into()), ("offset", 1.into()), ("limit", 1.into())]);
    assert_eq!(shown(&scratch, &second), "middle\n");
    assert_eq!(second.message("more"), Value::Bool(true));
}

#[test]
fn context_is_shown_once_and_groups_are_apart() {
    let lines: Vec<String> = (1..=30).map(|n| format!("line {n}")).collect();
    let scratch = scratch(&[("f", lines.join("\n").as_bytes())]);
    let stream = tool(
        "grep",
        &scratch,
        [
            ("pattern", "line (5|7|20)$".into()),
            ("mode", "content".into()),
            ("before", 2.into()),
            ("after", 1.into()),
        ],
    );
    let expected = "f-3-line 3\nf-4-line 4\nf:5:line 5\nf-6-line 6\nf:7:line 7\nf-8-line 8\n--\nf-18-line 18\nf-19-line 19\nf:20:line 20\nf-21-line 21\n";
    assert_eq!(shown(&scratch, &stream), expected);
}

#[test]
fn context_reaches_over_pieces_of_large_files() {
    let mut file = Vec::new();
    for n in 1..=200_000 {
        file.extend_from_slice(format!("line number {n}\n").as_bytes());
    }
    let scratch = scratch(&[("f", &file)]);
    for n in [2, 3, 7_000, 7_281, 7_282, 100_001, 199_999, 200_000] {
        let stream = tool(
            "grep",
            &scratch,
            [
                ("pattern", Value::Text(format!("number {n}$"))),
                ("mode", "content".into()),
                ("before", 3.into()),
                ("after", 2.into()),
            ],
        );
        let expected: String = (n.max(4) - 3..=(n + 2).min(200_000))
            .filter(|line| *line + 3 >= n)
            .map(|line| {
                let separator = if line == n { ':' } else { '-' };
                format!("f{separator}{line}{separator}line number {line}\n")
            })
            .collect();
        assert_eq!(shown(&scratch, &stream), expected, "{n}");
    }
}

#[test]
fn matches_stay_within_lines_unless_multiline() {
    let scratch = scratch(&[("f", b"foo\nbar\nbaz\n")]);
    assert_eq!(content(&scratch, r"foo\s*bar"), "");
    assert_eq!(content(&scratch, "[^x]+"), "f:1:foo\nf:2:bar\nf:3:baz\n");
    assert_eq!(fails("grep", &scratch, [("pattern", "foo\\nbar".into())]).0, "invalid_argument");
    let stream = tool(
        "grep",
        &scratch,
        [("pattern", "foo.*bar".into()), ("mode", "content".into()), ("multiline", true.into())],
    );
    assert_eq!(shown(&scratch, &stream), "f:1:foo\nf:2:bar\n");
}

#[test]
fn filters_by_glob_type_and_ignore_files() {
    let scratch = scratch(&[
        ("a.rs", b"x"),
        ("a.ts", b"x"),
        ("sub/b.rs", b"x"),
        ("target/c.rs", b"x"),
        (".gitignore", b"target\n"),
        (".hidden.rs", b"x"),
    ]);
    let found = |entries: [(&str, Value); 2]| {
        let mut names: Vec<String> =
            shown(&scratch, &tool("grep", &scratch, entries)).lines().map(str::to_owned).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(found([("pattern", "x".into()), ("type", "rust".into())]), ".hidden.rs a.rs sub/b.rs");
    assert_eq!(found([("pattern", "x".into()), ("glob", "*.{ts,js}".into())]), "a.ts");
    assert_eq!(found([("pattern", "x".into()), ("glob", "sub/**".into())]), "sub/b.rs");
    assert_eq!(found([("pattern", "x".into()), ("glob", "!*.rs".into())]), "a.ts");
    assert_eq!(
        found([("pattern", "x".into()), ("noIgnore", true.into())]),
        ".hidden.rs a.rs a.ts sub/b.rs target/c.rs"
    );
    let (code, message) = fails("grep", &scratch, [("pattern", "x".into()), ("type", "nope".into())]);
    assert_eq!(code, "invalid_argument");
    assert!(message.contains("rust"), "{message}");
}

#[test]
fn binary_files_and_invalid_text_are_handled() {
    let scratch = scratch(&[
        ("binary", b"find me\0"),
        ("late-binary", &[b"find me\n".to_vec(), b"hay\n".repeat(100_000), b"\0".to_vec()].concat()),
        ("latin", b"f\xfcr find me \xff\xfe\n"),
    ]);
    let stream = tool("grep", &scratch, [("pattern", "find me".into()), ("mode", "content".into())]);
    assert_eq!(stream.message("binary"), Value::Int(2));
    assert!(stream.data.ends_with(b"latin:1:f\xfcr find me \xff\xfe\n"));
}

#[test]
fn a_line_of_a_gigabyte_is_searched_in_little_memory() {
    let scratch = Scratch::new();
    let mut file = fs::File::create(scratch.at("huge")).expect("created");
    let piece = vec![b'a'; 1 << 20];
    for n in 0..1024 {
        file.write_all(&piece).expect("written");
        if n == 700 {
            file.write_all(b"needle").expect("written");
        }
    }
    drop(file);
    let before = resident();
    let stream = tool(
        "grep",
        &scratch,
        [("pattern", "needle".into()), ("mode", "content".into()), ("timeoutMs", 60_000.into())],
    );
    assert_eq!(stream.message("files"), Value::Int(1));
    assert!(text(&stream).contains("needle"));
    assert!(stream.data.len() < 2000);
    // Other tests run beside this one.
    assert!(resident().saturating_sub(before) < 200 << 20);
}

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/statm").expect("read");
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

#[test]
fn hostile_expressions_are_refused_or_linear() {
    let scratch = scratch(&[("f", "a".repeat(100_000).as_bytes())]);
    for pattern in ["(a+)+b", "(a|a)*b", "(.*)*x$", "a{1,500}b"] {
        let begun = Instant::now();
        assert_eq!(content(&scratch, pattern), "", "{pattern}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{pattern}: {:?}", begun.elapsed());
    }
    for pattern in ["(", "a{1000}{1000}{1000}", "\\p{Nope}", &"(".repeat(5000), &"a".repeat(100_000)] {
        assert_eq!(fails("grep", &scratch, [("pattern", pattern.into())]).0, "invalid_argument");
    }
    assert_eq!(content(&scratch, "").len(), 1000 + "f:1: [… 99000 bytes]\n".len());
}

#[test]
fn what_may_not_be_read_is_left_out() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = scratch(&[("open", b"x"), ("closed", b"x"), ("dir/inner", b"x")]);
    for (name, mode) in [("closed", 0o600), ("dir", 0o700), ("open", 0o644)] {
        fs::set_permissions(scratch.at(name), fs::Permissions::from_mode(mode)).expect("changed");
    }
    as_user(4321, || {
        assert_eq!(shown(&scratch, &tool("grep", &scratch, [("pattern", "x".into())])), "open\n");
    });
}

#[test]
fn fifty_thousand_files_are_searched_within_their_time() {
    let scratch = Scratch::new();
    for directory in 0..500 {
        fs::create_dir(scratch.at(&format!("d{directory}"))).expect("made");
        for file in 0..100 {
            let content = if file == 7 { "a needle here\n" } else { "some hay\n" };
            fs::write(scratch.at(&format!("d{directory}/f{file}.txt")), content).expect("written");
        }
    }
    let stream = tool("grep", &scratch, [("pattern", "needle".into()), ("limit", 0.into())]);
    assert_eq!(stream.message("files"), Value::Int(500));
    assert_eq!(stream.message("searched"), Value::Int(50_000));
    assert_eq!(text(&stream).lines().count(), 500);
    let globbed = tool("glob", &scratch, [("pattern", "**/f9?.txt".into()), ("limit", 50_000.into())]);
    assert_eq!(globbed.message("files"), Value::Int(5_000));
}
