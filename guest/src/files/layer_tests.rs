//! Tests of `layer.rs`: layers over a tree. The process has another root directory here, so that symlinks in
//! these tests stay inside by themselves.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use super::super::faithful::{Ids, LeftOut};
use super::super::tar_header::{BLOCK, Header};
use super::super::test_stream::{Scratch, TestStream, code};
use super::super::unpack_layer;
use super::*;

const HERE: Ids = Ids { host: 0, size: 65_536 };

fn entry(kind: u8, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let (name, link, size) = (name.into(), link.into(), content.len() as i64);
    let mut bytes = Vec::new();
    let mode = if kind == b'5' { 0o750 } else { 0o4755 };
    Header { kind, name, link, mode, size, mtime: (1, 0), ..Header::default() }.encode(&mut bytes);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn file(name: &str) -> Vec<u8> {
    entry(b'0', name, "", name.as_bytes())
}

fn dir(name: &str) -> Vec<u8> {
    entry(b'5', name, "", b"")
}

fn apply(scratch: &Scratch, entries: &[Vec<u8>]) -> Result<LeftOut, Stopped> {
    fs::create_dir_all(scratch.at("to")).expect("made");
    let root: OwnedFd = fs::File::open(scratch.at("to")).expect("open").into();
    let archive = [entries.concat(), vec![0; 2 * BLOCK]].concat();
    unpack_layer(root, HERE, 1000, &mut TestStream::with(archive.chunks(700).map(<[u8]>::to_vec)))
}

fn below(scratch: &Scratch) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![String::new()];
    while let Some(path) = waiting.pop() {
        for name in scratch.names(&format!("to/{path}")) {
            let one = if path.is_empty() { name } else { format!("{path}/{name}") };
            if fs::symlink_metadata(scratch.at(&format!("to/{one}"))).expect("there").is_dir() {
                waiting.push(one.clone());
            }
            found.push(one);
        }
    }
    found.sort();
    found
}

fn lower() -> Scratch {
    let scratch = Scratch::new();
    apply(&scratch, &[dir("a"), file("a/one"), file("a/two"), dir("a/sub"), file("a/sub/deep"), file("b")])
        .expect("unpacked");
    scratch
}

#[test]
fn whiteouts_take_away_what_is_below_and_leave_no_trace() {
    let scratch = lower();
    apply(
        &scratch,
        &[file("a/.wh.one"), file("a/.wh.sub"), file(".wh.b"), file("gone/.wh.x"), file(".wh.y")],
    )
    .expect("unpacked");
    assert_eq!(below(&scratch), ["a", "a/two"]);
}

#[test]
fn opaque_directories_hide_what_is_below_in_any_order() {
    for late in [false, true] {
        let scratch = lower();
        let mut entries = vec![dir("a"), file("a/.wh..wh..opq"), file("a/new"), file("a/sub/other")];
        if late {
            entries.rotate_left(2);
            entries.rotate_right(1);
        }
        apply(&scratch, &entries).expect("unpacked");
        assert_eq!(below(&scratch), ["a", "a/new", "a/sub", "a/sub/other", "b"], "{late}");
    }
}

#[test]
fn a_whiteout_spares_what_its_own_layer_made() {
    let scratch = lower();
    apply(&scratch, &[file("a/sub/own"), file("a/one"), file("a/.wh.one"), file("a/.wh.sub"), file(".wh.a")])
        .expect("unpacked");
    assert_eq!(below(&scratch), ["a", "a/one", "a/sub", "a/sub/own", "b"]);
}

#[test]
fn whiteouts_of_the_directory_itself_or_above_are_refused() {
    for name in ["a/.wh.", "a/.wh..", "a/.wh...", ".wh...", "a/../.wh.b", "../.wh.outside"] {
        let scratch = lower();
        let stopped = apply(&scratch, &[file(name)]).expect_err("refused");
        assert_eq!(code(&stopped), "invalid_argument", "{name}");
        assert!(below(&scratch).contains(&"a/one".to_owned()));
    }
    let scratch = lower();
    apply(&scratch, &[file(".wh..wh.plnk"), file(".wh..wh.aufs")]).expect("notes are passed over");
    assert_eq!(below(&scratch).len(), 6);
}

#[test]
fn entries_replace_entries_of_another_kind() {
    let scratch = lower();
    apply(&scratch, &[file("a"), dir("b"), file("b/in")]).expect("unpacked");
    assert_eq!(below(&scratch), ["a", "b", "b/in"]);
    apply(&scratch, &[entry(b'2', "b", "a", b""), entry(b'1', "hard", "a", b"")]).expect("unpacked");
    assert_eq!(below(&scratch), ["a", "b", "hard"]);
    // A directory replaces a symlink, and nothing is written through it.
    apply(&scratch, &[entry(b'2', "dirlink", ".", b""), dir("dirlink"), file("dirlink/x")])
        .expect("unpacked");
    assert_eq!(below(&scratch), ["a", "b", "dirlink", "dirlink/x", "hard"]);
    // The mode of a file that replaces a hard link is its own alone.
    apply(&scratch, &[file("hard")]).expect("unpacked");
    assert_eq!(fs::metadata(scratch.at("to/a")).expect("there").nlink(), 1);
    assert_eq!(fs::metadata(scratch.at("to/hard")).expect("there").mode() & 0o7777, 0o4755);
}

#[test]
fn symlinked_parents_are_followed_inside() {
    let scratch = Scratch::new();
    apply(&scratch, &[dir("usr/lib"), entry(b'2', "lib", "usr/lib", b"")]).expect("unpacked");
    apply(&scratch, &[file("lib/one"), entry(b'1', "two", "lib/one", b"")]).expect("unpacked");
    assert_eq!(below(&scratch), ["lib", "two", "usr", "usr/lib", "usr/lib/one"]);
    apply(&scratch, &[file("lib/.wh.one")]).expect("unpacked");
    assert_eq!(below(&scratch), ["lib", "two", "usr", "usr/lib"]);
    // What a cached directory led through may be replaced meanwhile.
    apply(&scratch, &[file("lib/a"), dir("lib"), file("lib/b")]).expect("unpacked");
    assert_eq!(below(&scratch), ["lib", "lib/b", "two", "usr", "usr/lib", "usr/lib/a"]);
}

#[test]
fn devices_are_left_out_and_strange_owners_are_nobody() {
    let scratch = Scratch::new();
    let mut stranger = Vec::new();
    let header = Header { kind: b'0', name: b"far".to_vec(), uid: 4_000_000, gid: 5, ..Header::default() };
    header.encode(&mut stranger);
    let left = apply(
        &scratch,
        &[entry(b'3', "null", "", b""), entry(b'4', "disk", "", b""), entry(b'6', "pipe", "", b""), stranger],
    )
    .expect("unpacked");
    assert_eq!((left.files, left.owners), (2, 1));
    assert_eq!(below(&scratch), ["far", "pipe"]);
    assert!(fs::metadata(scratch.at("to/pipe")).expect("there").file_type().is_fifo());
    let far = fs::metadata(scratch.at("to/far")).expect("there");
    assert_eq!((far.uid(), far.gid()), (65_534, 5));
}

#[test]
fn entries_are_counted() {
    let scratch = Scratch::new();
    let many: Vec<Vec<u8>> = (0..1001).map(|n| file(&format!(".wh.{n}"))).collect();
    assert_eq!(code(&apply(&scratch, &many).expect_err("too many")), "resource_exhausted");
}

#[test]
fn climbing_names_and_links_are_refused() {
    let scratch = lower();
    fs::write(scratch.at("outside"), "safe").expect("written");
    for hostile in [
        vec![file("../evil")],
        vec![file("a/../../evil")],
        vec![entry(b'1', "hard", "../outside", b"")],
        vec![entry(b'1', "hard", "a", b"")],
        vec![entry(b'1', "hard", "", b"")],
        vec![entry(b'2', "loop", "loop", b""), file("loop/x")],
    ] {
        assert_eq!(code(&apply(&scratch, &hostile).expect_err("refused")), "invalid_argument");
    }
    symlink("nowhere", scratch.at("to/dangling")).expect("linked");
    assert!(apply(&scratch, &[file("dangling/x")]).is_err());
    assert_eq!(fs::read_to_string(scratch.at("outside")).expect("there"), "safe");
    assert_eq!(scratch.names(""), ["outside", "to"]);
}
