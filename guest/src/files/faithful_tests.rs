//! Tests of whole trees: `pack` and `unpack`, without the process around them.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::sys::Random;
use crate::value::Value;

use super::super::path::c_string;
use super::super::test_stream::{Scratch, TestStream, as_user, code, run, run_with};
use super::super::{pack, unpack};
use super::*;

const HERE: Ids = Ids { host: 0, size: 65_536 };
const THERE: Ids = Ids { host: 300_000, size: 65_536 };

fn root(scratch: &Scratch, name: &str) -> OwnedFd {
    let path = scratch.at(name);
    fs::create_dir_all(&path).expect("made");
    fs::File::open(path).expect("open").into()
}

fn packed(scratch: &Scratch, name: &str, ids: Ids) -> (Vec<u8>, LeftOut) {
    let mut stream = TestStream::new();
    let left_out = pack(&root(scratch, name), ids, &[], &mut stream).expect("packed");
    (stream.data, left_out)
}

fn unpacked(scratch: &Scratch, name: &str, ids: Ids, archive: &[u8]) -> Result<LeftOut, Stopped> {
    unpack(root(scratch, name), ids, &mut TestStream::with(archive.chunks(70_000).map(<[u8]>::to_vec)))
}

/// Everything about a tree, one line for each name; owners less `shift`.
fn fingerprint(scratch: &Scratch, name: &str, shift: u32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut links = std::collections::HashMap::new();
    let mut waiting = vec![scratch.at(name)];
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).expect("there");
        let below = path.strip_prefix(scratch.at(name)).expect("below").to_owned();
        let mut line = format!("{below:?} {:o} {}:{}", meta.mode(), meta.uid() - shift, meta.gid() - shift);
        line += &format!(" {}.{:09}", meta.mtime(), meta.mtime_nsec());
        if meta.is_symlink() {
            line += &format!(" {:?}", fs::read_link(&path).expect("a link"));
        } else if meta.is_file() || meta.is_dir() {
            let mut buffer = vec![0; xattrs::LARGEST];
            let mut attributes =
                xattrs::read(fs::File::open(&path).expect("open").as_raw_fd(), &mut buffer).0;
            attributes.sort();
            line += &format!(" {attributes:?}");
        }
        if meta.is_file() {
            let content = if meta.len() < 1 << 22 { fs::read(&path).expect("read") } else { Vec::new() };
            let mut hasher = DefaultHasher::new();
            hasher.write(&content);
            line += &format!(" {} {:x}", meta.len(), hasher.finish());
        }
        if meta.is_dir() {
            waiting.extend(
                fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()),
            );
        } else if meta.nlink() > 1 {
            links.entry(meta.ino()).or_insert_with(Vec::new).push(format!("{below:?}"));
        }
        lines.push(line);
    }
    lines.extend(links.into_values().map(|mut names| {
        names.sort();
        names.join(" = ")
    }));
    lines.sort();
    lines
}

/// A tree of anything, the same for the same seed.
fn grow(scratch: &Scratch, name: &str, random: &mut Random) {
    let mut directories = vec![scratch.at(name)];
    fs::create_dir_all(&directories[0]).expect("made");
    let mut files: Vec<std::path::PathBuf> = Vec::new();
    for n in 0..random.below(40) {
        let mut own = match random.below(5) {
            0 => format!("{}-{n}", "long".repeat(random.below(50) as usize)).into_bytes(),
            1 => format!("ünï {n}\n").into_bytes(),
            2 => [&b"\xff\xfe "[..], &[b'0' + n as u8]].concat(),
            _ => n.to_string().into_bytes(),
        };
        own.truncate(255);
        let path = directories[random.below(directories.len() as u64) as usize]
            .join(std::ffi::OsStr::from_bytes(&own));
        match random.below(8) {
            0 | 1 => {
                fs::create_dir(&path).expect("made");
                directories.push(path.clone());
            }
            2 => symlink(["nowhere", "..", "/etc/passwd", &"t".repeat(200)][random.below(4) as usize], &path)
                .expect("linked"),
            3 => sys::make_fifo_at(libc::AT_FDCWD, &c_string(path.as_os_str().as_bytes()), 0o640)
                .expect("made"),
            4 if !files.is_empty() => {
                fs::hard_link(&files[random.below(files.len() as u64) as usize], &path).expect("linked")
            }
            _ => {
                let content: Vec<u8> = (0..random.below(3000)).map(|_| random.below(256) as u8).collect();
                fs::write(&path, content).expect("written");
                if random.below(3) == 0 {
                    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
                    for _ in 0..random.below(4) {
                        file.write_all_at(b"data", random.below(2_000_000)).expect("written");
                    }
                    file.set_len(random.below(3_000_000)).expect("cut");
                }
                files.push(path.clone());
            }
        }
        let meta = fs::symlink_metadata(&path).expect("there");
        std::os::unix::fs::lchown(
            &path,
            Some(random.below(60_000) as u32),
            Some(random.below(60_000) as u32),
        )
        .expect("changed");
        if meta.is_file() || meta.is_dir() {
            if random.below(4) == 0 {
                let file = fs::File::open(&path).expect("open");
                let name = [&b"user.a=b%25"[..], b"user.plain"][random.below(2) as usize];
                // A file system without attributes has nothing to keep.
                let _ = xattrs::write(file.as_raw_fd(), name, b"\0\n=value");
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(random.below(0o10000) as u32))
                .expect("changed");
        }
        let time = (random.below(1 << 33) as i64 - (1 << 31), random.below(1_000_000_000) as i64);
        sys::set_modified_at(libc::AT_FDCWD, &c_string(path.as_os_str().as_bytes()), time.0, time.1)
            .expect("changed");
    }
}

fn is_root() -> bool {
    if !sys::is_root() {
        println!("skipped: whole trees need root");
    }
    sys::is_root()
}

#[test]
fn any_tree_survives_being_packed_and_unpacked_under_other_ids() {
    if !is_root() {
        return;
    }
    for seed in 0..40 {
        let scratch = Scratch::new();
        grow(&scratch, "from", &mut Random::new(seed));
        let (archive, left_out) = packed(&scratch, "from", HERE);
        assert_eq!(left_out, LeftOut::default());
        unpacked(&scratch, "to", THERE, &archive).expect("unpacked");
        assert_eq!(fingerprint(&scratch, "to", THERE.host), fingerprint(&scratch, "from", 0), "seed {seed}");
    }
}

#[test]
fn the_systems_tar_reads_a_whole_tree() {
    if !is_root() {
        return;
    }
    for seed in 100..110 {
        let scratch = Scratch::new();
        grow(&scratch, "from", &mut Random::new(seed));
        fs::create_dir(scratch.at("to")).expect("made");
        let mut command = Command::new("tar");
        command
            .args(["-x", "-p", "--xattrs", "--warning=no-timestamp", "--numeric-owner", "--same-owner", "-C"])
            .arg(scratch.at("to"))
            .stdin(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            println!("skipped: there is no tar here");
            return;
        };
        std::io::Write::write_all(
            &mut child.stdin.take().expect("a pipe"),
            &packed(&scratch, "from", HERE).0,
        )
        .expect("written");
        assert!(child.wait().expect("ended").success());
        assert_eq!(fingerprint(&scratch, "to", 0), fingerprint(&scratch, "from", 0), "seed {seed}");
    }
}

#[test]
fn holes_stay_holes_and_zeros_become_some() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("from")).expect("made");
    let huge = fs::File::create(scratch.at("from/huge")).expect("made");
    huge.set_len(20 << 30).expect("sized");
    huge.write_all_at(b"in the middle", 7 << 30).expect("written");
    fs::write(scratch.at("from/zeros"), vec![0; 5_000_001]).expect("written");
    fs::File::create(scratch.at("from/hole")).expect("made").set_len(12_345).expect("sized");
    let (archive, _) = packed(&scratch, "from", HERE);
    assert!(archive.len() < 6_000_000, "{}", archive.len());
    unpacked(&scratch, "to", HERE, &archive).expect("unpacked");
    let meta = |name: &str| fs::metadata(scratch.at(name)).expect("there");
    assert_eq!(fingerprint(&scratch, "to", 0), fingerprint(&scratch, "from", 0));
    assert!(meta("to/huge").blocks() < 10_000 && meta("to/zeros").blocks() < 100);
    let mut middle = [0; 13];
    fs::File::open(scratch.at("to/huge"))
        .and_then(|file| file.read_exact_at(&mut middle, 7 << 30))
        .expect("read");
    assert_eq!(&middle, b"in the middle");
}

#[test]
fn sockets_are_counted_and_foreign_owners_are_nobody() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("from")).expect("made");
    fs::write(scratch.at("from/file"), "x").expect("written");
    let _ = std::os::unix::net::UnixListener::bind(scratch.at("from/socket")).expect("bound");
    let (archive, left_out) = packed(&scratch, "from", THERE);
    assert_eq!(left_out, LeftOut { files: 1, owners: 2, ..LeftOut::default() });
    unpacked(&scratch, "to", THERE, &archive).expect("unpacked");
    assert_eq!(
        (scratch.names("to"), fs::metadata(scratch.at("to/file")).expect("there").uid()),
        (vec!["file".into()], 300_000 + 65_534)
    );
}

#[test]
fn only_the_chosen_paths_are_packed_and_no_symlink_leads_there() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("from/a/b")).expect("made");
    fs::write(scratch.at("from/a/b/file"), "x").expect("written");
    fs::write(scratch.at("from/other"), "x").expect("written");
    symlink("/", scratch.at("from/up")).expect("linked");
    let chosen = |path: &[u8]| {
        let mut stream = TestStream::new();
        pack(&root(&scratch, "from"), HERE, &[path], &mut stream).map(|_| stream.data)
    };
    unpacked(&scratch, "to", Ids { host: 0, ..HERE }, &chosen(b"/a/b").expect("packed")).expect("unpacked");
    assert_eq!((scratch.names("to"), scratch.names("to/a/b")), (vec!["a".into()], vec!["file".into()]));
    for (path, expected) in [
        (&b"up/etc"[..], "invalid_argument"),
        (b"../from", "invalid_argument"),
        (b"none", "not_found"),
        (b"//a", "invalid_argument"),
    ] {
        assert_eq!(code(&chosen(path).expect_err("refused")), expected, "{}", shown(path));
    }
}

#[test]
fn ids_beyond_the_range_and_devices_are_refused_and_missing_parents_belong_to_root() {
    if !is_root() {
        return;
    }
    let entry = |kind: u8, name: &str, uid: u32| {
        let mut bytes = Vec::new();
        Header { kind, name: name.into(), uid, mode: 0o755, ..Header::default() }.encode(&mut bytes);
        [bytes, vec![0; 1024]].concat()
    };
    let scratch = Scratch::new();
    for archive in
        [entry(b'0', "x", 65_536), entry(b'0', "x", u32::MAX), entry(b'3', "x", 0), entry(b'4', "x", 0)]
    {
        assert_eq!(
            code(&unpacked(&scratch, "to", THERE, &archive).expect_err("refused")),
            "invalid_argument"
        );
        assert!(scratch.names("to").is_empty());
    }
    unpacked(&scratch, "to", THERE, &entry(b'0', "a/b/file", 7)).expect("unpacked");
    let owner = |name: &str| fs::metadata(scratch.at(name)).expect("there").uid();
    assert_eq!((owner("to/a"), owner("to/a/b"), owner("to/a/b/file")), (300_000, 300_000, 300_007));
}

#[test]
fn damaged_trees_never_panic_and_never_leave_the_directory() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("outside")).expect("made");
    fs::write(scratch.at("outside/file"), "safe").expect("written");
    let mut random = Random::new(5);
    for round in 0..100 {
        let scene = Scratch::new();
        grow(&scene, "from", &mut random);
        let mut archive = packed(&scene, "from", HERE).0;
        for _ in 0..1 + random.below(10) {
            // Mostly where numbers, names and maps are.
            let at = random.below(archive.len() as u64) as usize;
            let at = if round % 2 == 0 { at } else { at / 512 * 512 + random.below(60) as usize };
            archive[at] = if random.below(2) == 0 {
                b"0123456789/.\n"[random.below(13) as usize]
            } else {
                random.below(256) as u8
            };
        }
        let _ = unpacked(&scratch, "to", THERE, &archive);
        assert_eq!(
            (scratch.names(""), scratch.names("outside")),
            (vec!["outside".to_owned(), "to".to_owned()], vec!["file".to_owned()])
        );
        assert_eq!(fs::read(scratch.at("outside/file")).expect("there"), b"safe");
        fs::remove_dir_all(scratch.at("to")).expect("removed");
    }
}

#[test]
fn ids_are_shifted_and_never_leave_their_range() {
    let ids = Ids::parse("100000:65536").expect("ids");
    assert_eq!((ids.inside(100_000), ids.inside(165_535)), (Some(0), Some(65_535)));
    assert_eq!((ids.inside(99_999), ids.inside(165_536), ids.inside(0)), (None, None, None));
    assert_eq!(
        (ids.outside(0), ids.outside(65_535), ids.outside(65_536), ids.outside(u32::MAX)),
        (Some(100_000), Some(165_535), None, None)
    );
    assert_eq!(Ids::parse("0:4294967295"), Some(Ids { host: 0, size: u32::MAX }));
    for bad in ["", "1", "1:", ":1", "1:0", "-1:5", "1:4294967295", "x:1", "1:2:3", "4294967296:1"] {
        assert_eq!(Ids::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_user_packs_and_unpacks_their_own_files_faithfully() {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.root(), fs::Permissions::from_mode(0o777)).expect("changed");
    as_user(1000, || {
        fs::create_dir_all(scratch.at("from/home/closed")).expect("made");
        fs::create_dir_all(scratch.at("from/tmp")).expect("made");
        fs::create_dir_all(scratch.at("to/home")).expect("made");
        fs::create_dir_all(scratch.at("to/tmp")).expect("made");
        fs::write(scratch.at("from/home/one"), "x").expect("written");
        fs::hard_link(scratch.at("from/home/one"), scratch.at("from/home/other")).expect("linked");
        fs::write(scratch.at("from/home/closed/file"), "y").expect("written");
        fs::write(scratch.at("from/tmp/note"), "z").expect("written");
        fs::create_dir_all(scratch.at("from/home/mounted/deep")).expect("made");
        fs::write(scratch.at("from/home/mounted-too"), "v").expect("written");
        let mode = |name: &str, mode| {
            fs::set_permissions(scratch.at(name), fs::Permissions::from_mode(mode)).expect("changed");
        };
        let modes = |name: &str| fs::symlink_metadata(scratch.at(name)).expect("there").mode() & 0o7777;
        mode("from/home/closed/file", 0);
        mode("from/home/closed", 0);
        let paths = Value::Array(vec!["home".into(), "tmp".into()]);
        let except = Value::Array(vec!["home/mounted".into()]);
        let request = [("path", scratch.path("from")), ("paths", paths), ("except", except)];
        let packed = run("pack", Value::map(request)).data;
        assert_eq!(modes("from/home/closed"), 0, "what was made readable is as it was");
        let stream = TestStream::with(packed.chunks(1000).map(<[u8]>::to_vec));
        run_with("unpack", Value::map([("path", scratch.path("to"))]), stream);
        assert_eq!(modes("to/home/closed"), 0);
        mode("to/home/closed", 0o700);
        assert_eq!(modes("to/home/closed/file"), 0);
        assert_eq!(fs::metadata(scratch.at("to/home/one")).expect("there").nlink(), 2);
        assert_eq!(fs::read(scratch.at("to/tmp/note")).expect("there"), b"z");
        assert!(!scratch.at("to/home/mounted").exists(), "something else is mounted there");
        assert!(scratch.at("to/home/mounted-too").exists());
        // So that it can be removed.
        mode("from/home/closed", 0o700);
    });
}
