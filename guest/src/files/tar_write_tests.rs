//! Tests of `tar_write.rs`.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

use super::super::test_stream::{Scratch, TestStream, as_user, code, fails, run, run_with};
use super::*;

fn tree(scratch: &Scratch) {
    fs::create_dir_all(scratch.at("from/dir/empty")).expect("made");
    fs::write(scratch.at("from/dir/file"), vec![b'f'; 200_001]).expect("written");
    fs::write(scratch.at("from/script"), "#!").expect("written");
    // Only root gets set-user-id back.
    let mode = if sys::is_root() { 0o4755 } else { 0o755 };
    fs::set_permissions(scratch.at("from/script"), fs::Permissions::from_mode(mode)).expect("changed");
    fs::write(scratch.at("from/ünï"), "u").expect("written");
    fs::write(scratch.at("from").join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "raw").expect("written");
    let long = format!("from/{}/{}", "l".repeat(200), "m".repeat(200));
    fs::create_dir_all(scratch.at(&long)).expect("made");
    fs::write(scratch.at(&format!("{long}/file")), "long").expect("written");
    symlink("../nowhere", scratch.at("from/link")).expect("linked");
    symlink("t".repeat(300), scratch.at("from/long-link")).expect("linked");
    sys::make_fifo_at(libc::AT_FDCWD, &c_string(scratch.at("from/fifo").as_os_str().as_bytes()), 0o600)
        .expect("made");
    let _ = std::os::unix::net::UnixListener::bind(scratch.at("from/socket")).expect("bound");
    fs::set_permissions(scratch.at("from/dir/empty"), fs::Permissions::from_mode(0o500)).expect("changed");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::open(scratch.at("from/dir")).and_then(|dir| dir.set_modified(old)).expect("changed");
    if sys::is_root() {
        std::os::unix::fs::chown(scratch.at("from/dir/file"), Some(5_000_000), Some(7)).expect("changed");
    }
}

/// Everything that matters about a tree, one line per file.
fn fingerprint(scratch: &Scratch, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![scratch.at(name)];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let meta = fs::symlink_metadata(&path).expect("there");
            let content = if meta.is_file() {
                format!("{} {:?}", meta.len(), fs::read(&path).expect("readable").last())
            } else if meta.is_symlink() {
                format!("{:?}", fs::read_link(&path).expect("a link"))
            } else {
                String::new()
            };
            let below = path.strip_prefix(scratch.at(name)).expect("below");
            lines.push(format!(
                "{below:?} {:o} {}:{} {} {content}",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.mtime()
            ));
            if meta.is_dir() {
                waiting.push(path);
            }
        }
    }
    lines.sort();
    lines
}

fn archive(scratch: &Scratch, name: &str) -> Vec<u8> {
    run("tar", Value::map([("path", scratch.path(name))])).data
}

fn unpack(scratch: &Scratch, name: &str, archive: &[u8], piece: usize) -> TestStream {
    let stream = TestStream::with(archive.chunks(piece).map(<[u8]>::to_vec));
    run_with("untar", Value::map([("path", scratch.path(name))]), stream)
}

#[test]
fn a_tree_survives_tar_and_untar_in_pieces_of_any_size() {
    let scratch = Scratch::new();
    tree(&scratch);
    let archive = archive(&scratch, "from");
    assert_eq!(archive.len() % BLOCK, 0);
    fs::remove_file(scratch.at("from/socket")).expect("removed");
    for (n, piece) in [131_072, 7, 512, 1000].into_iter().enumerate() {
        let stream = unpack(&scratch, &format!("to{n}/new/place"), &archive, piece);
        assert_eq!(fingerprint(&scratch, &format!("to{n}/new/place")), fingerprint(&scratch, "from"));
        assert_eq!(
            (stream.message("entries"), stream.message("bytes")),
            (Value::Int(12), Value::Int(200_001 + 2 + 1 + 3 + 4))
        );
    }
    // Once more over itself.
    unpack(&scratch, "to0/new/place", &archive, 4096);
    assert_eq!(fingerprint(&scratch, "to0/new/place"), fingerprint(&scratch, "from"));
}

#[test]
fn the_systems_tar_reads_what_is_written() {
    let scratch = Scratch::new();
    tree(&scratch);
    let archive = archive(&scratch, "from");
    fs::remove_file(scratch.at("from/socket")).expect("removed");
    fs::create_dir(scratch.at("to")).expect("made");
    let mut command = Command::new("tar");
    command.args(["-x", "-p", "--numeric-owner", "-C"]).arg(scratch.at("to")).stdin(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: there is no tar here");
        return;
    };
    child.stdin.take().expect("a pipe").write_all(&archive).expect("written");
    assert!(child.wait().expect("ended").success());
    assert_eq!(fingerprint(&scratch, "to"), fingerprint(&scratch, "from"));
}

#[test]
fn what_the_systems_tar_writes_is_read() {
    let scratch = Scratch::new();
    tree(&scratch);
    fs::remove_file(scratch.at("from/socket")).expect("removed");
    fs::write(scratch.at("from/first"), "linked").expect("written");
    fs::hard_link(scratch.at("from/first"), scratch.at("from/second")).expect("linked");
    for format in ["gnu", "pax"] {
        let mut command = Command::new("tar");
        command.args(["-c", "--numeric-owner", "--format", format, "-C"]).arg(scratch.at("from")).arg(".");
        let Ok(output) = command.output() else {
            println!("skipped: there is no tar here");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        unpack(&scratch, format, &output.stdout, 10_000);
        assert_eq!(fingerprint(&scratch, format), fingerprint(&scratch, "from"));
        let inode = |name: &str| fs::metadata(scratch.at(&format!("{format}/{name}"))).expect("there").ino();
        assert_eq!(inode("first"), inode("second"));
    }
}

#[test]
fn only_the_paths_asked_for_are_archived_and_none_leaves_the_directory() {
    let scratch = Scratch::new();
    tree(&scratch);
    symlink("/", scratch.at("from/root")).expect("linked");
    let request = |paths: Value| Value::map([("path", scratch.path("from")), ("paths", paths)]);
    let chosen = |paths: &[&str]| request(Value::Array(paths.iter().map(|path| (*path).into()).collect()));
    let stream = run("tar", chosen(&["script", "./dir/"]));
    unpack(&scratch, "to", &stream.data, 100_000);
    assert_eq!(
        (scratch.names("to"), scratch.names("to/dir")),
        (vec!["dir".into(), "script".into()], vec!["empty".into(), "file".into()])
    );
    for paths in
        [&["../from/script"][..], &["dir/../script"], &["/script"], &["root/etc/passwd"], &["script/x"]]
    {
        assert_eq!(code(&fails("tar", chosen(paths))), "invalid_argument", "{paths:?}");
    }
    assert_eq!(code(&fails("tar", chosen(&["none"]))), "not_found");
    assert_eq!(code(&fails("tar", request("script".into()))), "invalid_argument");
    assert_eq!(code(&fails("tar", request(Value::Array(vec![1.into()])))), "invalid_argument");
    assert_eq!(run("tar", chosen(&[])).data, vec![0; 1024]);
}

#[test]
fn a_single_file_is_an_archive_of_one() {
    let scratch = Scratch::new();
    fs::write(scratch.at("real"), "content").expect("written");
    symlink("real", scratch.at("name")).expect("linked");
    unpack(&scratch, "to", &archive(&scratch, "name"), 512);
    assert_eq!(fs::read_to_string(scratch.at("to/name")).expect("there"), "content");
}

#[test]
fn files_that_change_while_they_are_read_still_make_a_valid_archive() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("from")).expect("made");
    let path = scratch.at("from/file");
    fs::write(&path, vec![1; 2_000_000]).expect("written");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let changer = std::thread::spawn(move || {
        let file = fs::OpenOptions::new().write(true).open(path).expect("open");
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            [10, 3_000_000, 500_000].into_iter().for_each(|size| file.set_len(size).expect("changed"));
        }
    });
    for n in 0..50 {
        unpack(&scratch, &format!("to{n}"), &archive(&scratch, "from"), 131_072);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    changer.join().expect("no panic");
}

#[test]
fn sizes_beyond_eight_gigabytes_and_odd_times_are_told_by_pax_records() {
    let mut bytes = Vec::new();
    let header = Header {
        kind: b'0',
        name: b"huge".to_vec(),
        size: 9_000_000_000,
        mtime: (-5, 0),
        uid: u32::MAX - 1,
        ..Header::default()
    };
    header.encode(&mut bytes);
    let mut stream = TestStream::with([bytes]);
    let mut reader = super::super::tar_read::TarReader::new(&mut stream);
    assert_eq!(reader.entry().expect("an entry"), Some(header));
}

#[test]
fn what_may_not_be_read_fails_instead_of_being_left_out() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("from")).expect("made");
    fs::write(scratch.at("from/secret"), "x").expect("written");
    fs::set_permissions(scratch.at("from/secret"), fs::Permissions::from_mode(0o600)).expect("changed");
    as_user(4321, || {
        assert_eq!(code(&fails("tar", Value::map([("path", scratch.path("from"))]))), "permission_denied")
    });
}

/// Run with `--release -- --ignored --nocapture`: a measurement, not a check.
#[test]
#[ignore = "measures throughput; run it by name in a release build"]
fn throughput() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("from")).expect("made");
    let bytes = 512 << 20;
    fs::write(scratch.at("from/large"), vec![3u8; bytes]).expect("written");
    let measure = |what: &str, work: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        work();
        println!("{what}: {:.0} MB/s", bytes as f64 / 1e6 / start.elapsed().as_secs_f64());
    };
    let request = || Value::map([("path", scratch.path("from"))]);
    measure("tar", &mut || drop(run_with("tar", request(), TestStream::new().counting())));
    let file = || Value::map([("path", scratch.path("from/large"))]);
    measure("read", &mut || drop(run_with("read", file(), TestStream::new().counting())));
    let chunks =
        |bytes: Vec<u8>| TestStream::with(bytes.chunks(131_072).map(<[u8]>::to_vec).collect::<Vec<_>>());
    let input = chunks(archive(&scratch, "from"));
    let mut input = Some(input);
    measure("untar", &mut || {
        drop(run_with("untar", Value::map([("path", scratch.path("to"))]), input.take().expect("once")))
    });
    let mut input = Some(chunks(vec![4; bytes]));
    measure("write", &mut || {
        drop(run_with("write", Value::map([("path", scratch.path("out"))]), input.take().expect("once")))
    });
}

#[test]
#[ignore = "measures many small files; run it by name in a release build"]
fn small_files() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("many")).expect("made");
    (0..20_000).for_each(|n| fs::write(scratch.at(&format!("many/{n}")), "small").expect("written"));
    let many = run("tar", Value::map([("path", scratch.path("many"))])).data;
    let start = std::time::Instant::now();
    drop(archive(&scratch, "many"));
    println!("tar of 20,000 small files: {:?}", start.elapsed());
    let start = std::time::Instant::now();
    unpack(&scratch, "many2", &many, 131_072);
    println!("untar of 20,000 small files: {:?}", start.elapsed());
    let start = std::time::Instant::now();
    drop(run("list", Value::map([("path", scratch.path("many"))])));
    println!("list of 20,000 small files: {:?}", start.elapsed());
}
