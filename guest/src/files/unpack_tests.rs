//! Tests of `unpack.rs`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::super::tar_header::BLOCK;
use super::super::test_stream::{Scratch, SmallDisk, TestStream, as_user, code, run_with};
use super::*;

fn entry(kind: u8, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let (name, link, size) = (name.into(), link.into(), content.len() as i64);
    let mut bytes = Vec::new();
    let mode = if kind == b'5' { 0o750 } else { 0o640 };
    Header { kind, name, link, mode, size, mtime: (1, 0), ..Header::default() }.encode(&mut bytes);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK]
}

/// A scratch directory with something worth protecting beside the place to unpack into.
fn scene() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("to")).expect("made");
    fs::create_dir(scratch.at("outside")).expect("made");
    fs::write(scratch.at("outside/file"), "safe").expect("written");
    scratch
}

fn check_outside(scratch: &Scratch) {
    assert_eq!(scratch.names(""), ["outside", "to"]);
    assert_eq!(scratch.names("outside"), ["file"]);
    assert_eq!(fs::read_to_string(scratch.at("outside/file")).expect("there"), "safe");
    assert_eq!(fs::metadata(scratch.at("outside/file")).expect("there").nlink(), 1);
}

fn unpack(scratch: &Scratch, archive: Vec<u8>) -> Result<(), Stopped> {
    let request = Value::map([("path", scratch.path("to"))]);
    super::super::run("untar", &request, &mut TestStream::with(archive.chunks(3000).map(<[u8]>::to_vec)))
}

fn refuses(scratch: &Scratch, entries: &[Vec<u8>]) {
    let stopped = unpack(scratch, [entries.concat(), end()].concat()).expect_err("refused");
    assert_eq!(code(&stopped), "invalid_argument", "{stopped:?}");
    check_outside(scratch);
}

#[test]
fn nothing_leaves_the_directory() {
    let outside = |scratch: &Scratch| scratch.at("outside").display().to_string();
    let scratch = scene();
    refuses(&scratch, &[entry(b'0', "../evil", "", b"x")]);
    refuses(&scratch, &[entry(b'0', "a/../../evil", "", b"x")]);
    refuses(&scratch, &[entry(b'5', "..", "", b"")]);
    refuses(&scratch, &[entry(b'0', &format!("{}/..", "x".repeat(200)), "", b"x")]);
    // A symlink and then something through it.
    refuses(&scratch, &[entry(b'2', "l", &outside(&scratch), b""), entry(b'0', "l/evil", "", b"x")]);
    refuses(
        &scratch,
        &[entry(b'2', "m", "../outside", b""), entry(b'5', "m", "", b""), entry(b'0', "m/evil", "", b"x")],
    );
    refuses(&scratch, &[entry(b'2', "n", "..", b""), entry(b'5', "n/evil", "", b"")]);
    refuses(&scratch, &[entry(b'2', "o", "../outside", b""), entry(b'1', "p", "o/file", b"")]);
    refuses(&scratch, &[entry(b'2', "q", "../outside", b""), entry(b'2', "q/evil", "x", b"")]);
    refuses(&scratch, &[entry(b'2', "r", "../outside", b""), entry(b'6', "r/evil", "", b"")]);
    // Hard links out, also to a symlink's target.
    refuses(&scratch, &[entry(b'1', "hard", "../outside/file", b"")]);
    refuses(&scratch, &[entry(b'1', "hard", "a/../../outside/file", b"")]);
    refuses(&scratch, &[entry(b'1', "hard", "", b"")]);
    // An existing symlink in the way.
    symlink("../outside", scratch.at("to/there")).expect("linked");
    refuses(&scratch, &[entry(b'0', "there/evil", "", b"x")]);
    refuses(&scratch, &[entry(b'5', "there/", "", b"")]);
}

#[test]
fn symlinks_in_the_place_of_a_file_are_replaced_and_not_written_through() {
    let scratch = scene();
    let archive = [
        entry(b'2', "link", "../outside/file", b""),
        entry(b'0', "link", "", b"evil"),
        entry(b'2', "other", "../outside/file", b""),
        entry(b'1', "hard", "other", b""),
        entry(b'0', "hard", "", b"evil"),
        entry(b'0', "/etc/absolute", "", b"here"),
        end(),
    ];
    unpack(&scratch, archive.concat()).expect("unpacked");
    check_outside(&scratch);
    assert_eq!(fs::read_to_string(scratch.at("to/link")).expect("there"), "evil");
    assert_eq!(fs::read_to_string(scratch.at("to/etc/absolute")).expect("there"), "here");
    assert!(fs::symlink_metadata(scratch.at("to/other")).expect("there").is_symlink());
}

#[test]
fn devices_sparse_files_and_unknown_types_are_refused() {
    let scratch = scene();
    for kind in [b'3', b'4', b'S', b'D', b'M', b'V', b'Z', 0xff] {
        refuses(&scratch, &[entry(kind, "x", "", b"")]);
    }
    refuses(&scratch, &[entry(b'x', "pax", "", b"22 GNU.sparse.major=1\n"), entry(b'0', "x", "", b"")]);
    refuses(&scratch, &[entry(b'0', "", "", b"x")]);
    refuses(&scratch, &[entry(b'2', "x", "", b"")]);
    refuses(&scratch, &[entry(b'x', "pax", "", b"12 path=a\0b\n"), entry(b'0', "x", "", b"")]);
    assert!(scratch.names("to").is_empty());
}

#[test]
fn archives_that_end_early_or_lie_are_refused_and_leave_no_partial_file() {
    let scratch = scene();
    let whole = entry(b'0', "file", "", &[b'x'; 2000]);
    for length in [0, 1, 511, 512, 513, 2000, 2512, 2559, 2560] {
        let stopped = unpack(&scratch, whole[..length].to_vec()).expect_err("refused");
        assert_eq!(code(&stopped), "invalid_argument", "{length}");
        let left = if length == 2560 { vec!["file".to_owned()] } else { vec![] };
        assert_eq!(scratch.names("to"), left, "{length}");
    }
    fs::remove_file(scratch.at("to/file")).expect("removed");
    let mut wrong = whole.clone();
    wrong[0] ^= 1;
    refuses(&scratch, &[wrong]);
    refuses(&scratch, &[b"this is not an archive at all ".repeat(40)]);
    for size in [i64::MAX, 1 << 40] {
        let mut huge = Vec::new();
        Header { kind: b'0', name: b"huge".to_vec(), size, ..Header::default() }.encode(&mut huge);
        refuses(&scratch, &[huge]);
    }
    for kind in [b'L', b'K', b'x', b'g'] {
        refuses(&scratch, &[entry(kind, "long", "", &vec![b'a'; 1_200_000]), entry(b'0', "x", "", b"")]);
        let mut huge = Vec::new();
        Header { kind, name: b"huge".to_vec(), size: 1 << 40, ..Header::default() }.encode(&mut huge);
        refuses(&scratch, &[huge]);
    }
    refuses(
        &scratch,
        &[entry(b'x', "pax", "", b"28 size=99999999999999999999\n"), entry(b'0', "x", "", b"")],
    );
    refuses(&scratch, &[entry(b'x', "pax", "", b"11 size=-1\n"), entry(b'0', "x", "", b"")]);
    refuses(&scratch, &[entry(b'L', "long", "", b"name\0")]);
    assert!(scratch.names("to").is_empty());
    assert_eq!(
        code(&unpack(&scratch, entry(b'0', &"d/".repeat(3000), "", b"")).expect_err("refused")),
        "invalid_argument"
    );
}

#[test]
fn a_stream_that_goes_away_leaves_no_partial_file() {
    let scratch = scene();
    let whole = [entry(b'5', "dir", "", b""), entry(b'0', "dir/file", "", &[b'x'; 2000])].concat();
    let mut stream = TestStream::with([whole[..2000].to_vec()]).vanishing();
    let stopped = super::super::run("untar", &Value::map([("path", scratch.path("to"))]), &mut stream)
        .expect_err("gone");
    assert_eq!(code(&stopped), "gone");
    assert!(scratch.names("to/dir").is_empty());
    assert_eq!(fs::metadata(scratch.at("to/dir")).expect("there").mode() & 0o7777, 0o750);
}

#[test]
fn files_replace_files_but_not_directories() {
    let scratch = scene();
    fs::write(scratch.at("to/file"), "old and longer").expect("written");
    fs::hard_link(scratch.at("to/file"), scratch.at("to/twin")).expect("linked");
    fs::create_dir(scratch.at("to/dir")).expect("made");
    unpack(&scratch, [entry(b'0', "file", "", b"new"), entry(b'1', "file", "file", b""), end()].concat())
        .expect("unpacked");
    assert_eq!(fs::read_to_string(scratch.at("to/file")).expect("there"), "new");
    assert_eq!(fs::read_to_string(scratch.at("to/twin")).expect("there"), "old and longer");
    refuses(&scratch, &[entry(b'0', "dir", "", b"x")]);
    refuses(&scratch, &[entry(b'2', "dir", "x", b"")]);
    refuses(&scratch, &[entry(b'0', "file/below", "", b"x")]);
    refuses(&scratch, &[entry(b'5', "file", "", b"")]);
}

#[test]
fn times_and_extended_headers_are_applied() {
    let scratch = scene();
    let archive = [
        entry(b'g', "global", "", b"13 comment=x\n"),
        entry(b'x', "pax", "", b"22 mtime=1234567890.5\n16 path=renamed\n14 other=kept\n"),
        entry(b'0', "original", "", b"x"),
        entry(b'L', "long", "", &[&[b'n'; 150][..], b"\0"].concat()),
        entry(b'0', "short", "", b"y"),
        end(),
        b"whatever follows".to_vec(),
    ];
    unpack(&scratch, archive.concat()).expect("unpacked");
    let meta = fs::metadata(scratch.at("to/renamed")).expect("there");
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_234_567_890, 500_000_000));
    assert_eq!(scratch.names("to"), ["n".repeat(150), "renamed".to_owned()]);
}

#[test]
fn a_user_unpacks_as_themselves_and_without_set_user_id() {
    let scratch = scene();
    fs::set_permissions(scratch.at("to"), fs::Permissions::from_mode(0o777)).expect("changed");
    let mut archive = Vec::new();
    Header { kind: b'5', name: b"dir/".to_vec(), mode: 0o555, uid: 7, ..Header::default() }
        .encode(&mut archive);
    Header { kind: b'0', name: b"dir/file".to_vec(), mode: 0o6755, uid: 7, gid: 7, ..Header::default() }
        .encode(&mut archive);
    let archive = [archive, end()].concat();
    as_user(4321, || {
        unpack(&scratch, archive.clone()).expect("unpacked");
        let meta = fs::metadata(scratch.at("to/dir/file")).expect("there");
        assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o755, 4321));
        assert_eq!(fs::metadata(scratch.at("to/dir")).expect("there").mode() & 0o7777, 0o555);
    });
    if sys::is_root() {
        unpack(&scratch, archive).expect("unpacked");
        let meta = fs::metadata(scratch.at("to/dir/file")).expect("there");
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o6755, 7, 7));
    }
}

#[test]
fn a_full_disk_is_reported() {
    let scratch = Scratch::new();
    let Some(_disk) = SmallDisk::mount(scratch.at("to"), 1 << 20) else { return };
    let stopped =
        unpack(&scratch, [entry(b'0', "large", "", &vec![1; 3 << 20]), end()].concat()).expect_err("full");
    assert_eq!(code(&stopped), "resource_exhausted");
    assert!(scratch.names("to").is_empty());
}

#[test]
fn a_deep_directory_and_its_attributes_are_unpacked_on_a_small_stack() {
    let scratch = scene();
    let deep = "d/".repeat(1500);
    let archive =
        [entry(b'5', &deep, "", b""), entry(b'0', &format!("{deep}file"), "", b"x"), end()].concat();
    let request = Value::map([("path", scratch.path("to"))]);
    let worker = std::thread::Builder::new().stack_size(128 * 1024);
    worker
        .spawn(move || drop(run_with("untar", request, TestStream::with([archive]))))
        .expect("started")
        .join()
        .expect("no panic");
    assert_eq!(fs::read_to_string(scratch.at(&format!("to/{deep}file"))).expect("there"), "x");
}

#[test]
fn random_archives_never_panic_and_never_leave_the_directory() {
    let scratch = scene();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let names = [
        "a",
        "a/b",
        "../outside/file",
        "a/../b",
        "/a",
        "l",
        "l/file",
        "l/l",
        "a/b/c",
        ".",
        "",
        "b/",
        "../to/a",
    ];
    let links = ["..", "../outside", "a", "/", "l", "b", "../outside/file", "l/file", "."];
    let kinds = b"0000555222211117xLKg3S6";
    for round in 0..4000 {
        let mut archive = Vec::new();
        for _ in 0..1 + random(5) {
            let content: Vec<u8> = (0..random(700)).map(|_| random(256) as u8).collect();
            let kind = kinds[random(kinds.len())];
            archive.extend(entry(kind, names[random(names.len())], links[random(links.len())], &content));
        }
        if round % 3 == 0 {
            // Damage that the checksum cannot see: in content and extended headers.
            for _ in 0..random(20) {
                let at = random(archive.len());
                archive[at] = random(256) as u8;
            }
        }
        if round % 7 == 0 {
            archive.truncate(random(archive.len()));
        }
        if round % 11 == 0 {
            archive = (0..random(3000)).map(|_| random(256) as u8).collect();
        }
        archive.extend(end());
        let _ = unpack(&scratch, archive);
        check_outside(&scratch);
        if round % 50 == 0 {
            fs::remove_dir_all(scratch.at("to")).expect("removed");
            fs::create_dir(scratch.at("to")).expect("made");
        }
    }
}

#[test]
fn headers_of_random_bytes_with_right_checksums_never_panic() {
    let scratch = scene();
    let mut seed = 1u64;
    for _ in 0..3000 {
        let mut block = [0u8; BLOCK];
        for byte in &mut block {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = if seed >> 62 == 0 { 0 } else { (seed >> 40) as u8 };
        }
        block[156] = b"0125x67LK"[(seed >> 35) as usize % 9];
        // Sizes that make sense now and then, so that what comes after a header is reached.
        if seed >> 63 == 0 {
            block[124..136].copy_from_slice(b"00000000010\0");
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let _ = unpack(&scratch, [block.to_vec(), block.to_vec(), end()].concat());
        check_outside(&scratch);
    }
}
