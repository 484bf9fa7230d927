//! Tests of `write.rs`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::super::test_stream::{Scratch, SmallDisk, TestStream, as_user, code, errno, run_with};
use super::*;

fn request(scratch: &Scratch, name: &str, extra: &[(&str, Value)]) -> Value {
    let mut entries = vec![("path".to_owned(), scratch.path(name))];
    entries.extend(extra.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Value::Map(entries)
}

fn chunks(texts: &[&str]) -> TestStream {
    TestStream::with(texts.iter().map(|text| text.as_bytes().to_vec()))
}

fn put(scratch: &Scratch, name: &str, texts: &[&str], extra: &[(&str, Value)]) -> Value {
    run_with("write", request(scratch, name, extra), chunks(texts)).message("info")
}

fn refused(scratch: &Scratch, name: &str, extra: &[(&str, Value)]) -> Stopped {
    super::super::run("write", &request(scratch, name, extra), &mut chunks(&["x"])).expect_err("refused")
}

fn content(scratch: &Scratch, name: &str) -> String {
    fs::read_to_string(scratch.at(name)).expect("readable")
}

#[test]
fn a_file_is_made_with_its_parents_and_replaced_keeping_mode_and_owner() {
    let scratch = Scratch::new();
    let info = put(&scratch, "a/b/file", &["hello ", "world"], &[]);
    assert_eq!(
        (info.int("size"), info.int("mode"), info.text("name")),
        (Some(11), Some(0o644), Some("file"))
    );
    fs::set_permissions(scratch.at("a/b/file"), fs::Permissions::from_mode(0o751)).expect("changed");
    if sys::is_root() {
        std::os::unix::fs::chown(scratch.at("a/b/file"), Some(4321), Some(4322)).expect("changed");
    } else {
        println!("skipped in part: giving files away needs root");
    }
    let before = fs::metadata(scratch.at("a/b/file")).expect("there");
    assert_eq!(put(&scratch, "a/b/file", &[], &[]).int("size"), Some(0));
    let after = fs::metadata(scratch.at("a/b/file")).expect("there");
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino());
    assert_eq!(put(&scratch, "a/b/file", &["x"], &[("mode", 0o4700.into())]).int("mode"), Some(0o4700));
    assert_eq!(scratch.names("a/b"), ["file"]);
}

#[test]
fn a_server_that_looks_is_told_whether_the_file_existed_before_it_is_replaced() {
    let scratch = Scratch::new();
    for (round, exists) in [false, true].into_iter().enumerate() {
        let looking = [("look", Value::Bool(true))];
        let done = run_with("write", request(&scratch, "file", &looking), chunks(&["new"]));
        let messages = done.messages.lock().expect("not poisoned");
        assert_eq!((messages.len(), messages[0].flag("exists")), (2, exists), "round {round}");
        assert!(messages[0].get("exists").is_some() && messages[1].get("info").is_some());
    }
}

#[test]
fn append_adds_in_place_and_exclusive_refuses_what_is_taken() {
    let scratch = Scratch::new();
    let append = [("append", Value::Bool(true))];
    put(&scratch, "log", &["one "], &append);
    let inode = fs::metadata(scratch.at("log")).expect("there").ino();
    assert_eq!(put(&scratch, "log", &["two"], &append).int("size"), Some(7));
    assert_eq!(
        (content(&scratch, "log").as_str(), fs::metadata(scratch.at("log")).expect("there").ino()),
        ("one two", inode)
    );
    let exclusive = [("exclusive", Value::Bool(true))];
    assert_eq!(errno(&refused(&scratch, "log", &exclusive)), "EEXIST");
    symlink("nowhere", scratch.at("dangling")).expect("linked");
    assert_eq!(errno(&refused(&scratch, "dangling", &exclusive)), "EEXIST");
    put(&scratch, "fresh", &["x"], &exclusive);
    assert_eq!(scratch.names(""), ["dangling", "fresh", "log"]);
}

#[test]
fn symlinks_are_written_through() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("real")).expect("made");
    fs::write(scratch.at("real/file"), "old").expect("written");
    symlink("real/file", scratch.at("one")).expect("linked");
    symlink("one", scratch.at("two")).expect("linked");
    symlink("real/new", scratch.at("dangling")).expect("linked");
    symlink("loop", scratch.at("loop")).expect("linked");
    put(&scratch, "two", &["new"], &[]);
    put(&scratch, "dangling", &["made"], &[]);
    put(&scratch, "two", &["er"], &[("append", true.into())]);
    assert_eq!(
        (content(&scratch, "real/file").as_str(), content(&scratch, "real/new").as_str()),
        ("newer", "made")
    );
    assert!(fs::symlink_metadata(scratch.at("two")).expect("there").is_symlink());
    assert_eq!(errno(&refused(&scratch, "loop", &[])), "ELOOP");
    assert_eq!(scratch.names("real"), ["file", "new"]);
}

#[test]
fn a_stream_that_goes_away_leaves_nothing_new() {
    let scratch = Scratch::new();
    fs::write(scratch.at("file"), "old").expect("written");
    for (name, append) in [("file", false), ("new/parents/file", false), ("other/file", true)] {
        let request = request(&scratch, name, &[("append", append.into())]);
        let stopped =
            super::super::run("write", &request, &mut chunks(&["part"]).vanishing()).expect_err("gone");
        assert_eq!(code(&stopped), "gone");
    }
    assert_eq!(scratch.names(""), ["file"]);
    assert_eq!(content(&scratch, "file"), "old");
}

#[test]
fn directories_devices_and_names_that_are_none_are_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.at("file"), "").expect("written");
    assert_eq!(errno(&refused(&scratch, "", &[])), "EISDIR");
    assert_eq!(errno(&refused(&scratch, "file/below", &[])), "ENOTDIR");
    assert_eq!(code(&refused(&scratch, "missing/..", &[])), "invalid_argument");
    assert_eq!(code(&refused(&scratch, "../../../../../dev/null", &[])), "invalid_argument");
    assert_eq!(code(&refused(&scratch, &"x".repeat(300), &[])), "invalid_argument");
    assert_eq!(code(&refused(&scratch, "file", &[("mode", (-1).into())])), "invalid_argument");
    assert_eq!(scratch.names(""), ["file"]);
}

#[test]
fn a_full_disk_is_reported_and_leaves_the_old_file_alone() {
    let scratch = Scratch::new();
    let Some(_disk) = SmallDisk::mount(scratch.at("disk"), 1 << 20) else { return };
    fs::write(scratch.at("disk/file"), "old").expect("written");
    for name in ["disk/file", "disk/sub/file"] {
        let mut stream = TestStream::with((0..20).map(|_| vec![1; 100_000]));
        let stopped =
            super::super::run("write", &request(&scratch, name, &[]), &mut stream).expect_err("full");
        assert_eq!((code(&stopped), errno(&stopped).as_str()), ("resource_exhausted", "ENOSPC"));
    }
    assert_eq!(scratch.names("disk"), ["file"]);
    assert_eq!(content(&scratch, "disk/file"), "old");
}

#[test]
fn a_file_that_is_a_mount_is_written_in_place() {
    let scratch = Scratch::new();
    fs::write(scratch.at("source"), "source is longer").expect("written");
    fs::write(scratch.at("target"), "target").expect("written");
    let mount = |args: &[&str]| {
        std::process::Command::new(args[0]).args(&args[1..]).status().is_ok_and(|status| status.success())
    };
    let (source, target) =
        (scratch.at("source").display().to_string(), scratch.at("target").display().to_string());
    if !sys::is_root() || !mount(&["mount", "--bind", &source, &target]) {
        println!("skipped: a bind mount needs root");
        return;
    }
    put(&scratch, "target", &["new"], &[]);
    let names = scratch.names("");
    assert!(mount(&["umount", &target]));
    assert_eq!(content(&scratch, "source"), "new");
    assert_eq!(names, ["source", "target"]);
}

#[test]
fn files_beyond_four_gigabytes_are_appended_to() {
    let scratch = Scratch::new();
    fs::File::create(scratch.at("large")).and_then(|file| file.set_len(5_000_000_000)).expect("made");
    assert_eq!(put(&scratch, "large", &["end"], &[("append", true.into())]).int("size"), Some(5_000_000_003));
}

#[test]
fn a_file_that_the_user_may_not_write_is_not_replaced_either() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("shared")).expect("made");
    fs::set_permissions(scratch.at("shared"), fs::Permissions::from_mode(0o777)).expect("changed");
    fs::write(scratch.at("shared/file"), "root's").expect("written");
    as_user(4321, || {
        assert_eq!(code(&refused(&scratch, "shared/file", &[])), "permission_denied");
        assert_eq!(code(&refused(&scratch, "denied", &[])), "permission_denied");
        assert_eq!(put(&scratch, "shared/mine", &["x"], &[]).int("uid"), Some(4321));
    });
}
