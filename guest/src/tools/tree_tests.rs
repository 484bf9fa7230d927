use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use super::super::testing::{Scratch, never_gone};
use super::*;

struct Paths(Vec<String>);

impl Visitor for Paths {
    fn file(&mut self, found: &Found<'_>) -> bool {
        self.0.push(String::from_utf8_lossy(found.path).into_owned());
        true
    }
}

fn bounds(ms: u64) -> Bounds {
    Bounds { deadline: Instant::now() + Duration::from_millis(ms), gone: never_gone() }
}

fn paths(scratch: &Scratch, respect: bool) -> Vec<String> {
    let root = FilePath::parse(scratch.root().as_os_str().as_encoded_bytes()).expect("absolute");
    let (visitors, walked) = walk(&root, respect, bounds(60_000), || Paths(Vec::new())).expect("walked");
    assert_eq!(walked, Walked::default());
    let mut all: Vec<String> = visitors.into_iter().flat_map(|paths| paths.0).collect();
    all.sort();
    all
}

#[test]
fn ignored_files_and_version_control_are_left_out_and_symlinks_are_not_followed() {
    let scratch = Scratch::new();
    for path in ["a/b.rs", "a/b.o", "target/x", "deep/target/keep", ".hidden", ".git/config", "deep/.x"] {
        fs::create_dir_all(scratch.at(path).parent().expect("a parent")).expect("made");
        fs::write(scratch.at(path), "").expect("written");
    }
    fs::write(scratch.at(".gitignore"), "*.o\n/target\n").expect("written");
    fs::write(scratch.at("deep/.ignore"), ".x\n").expect("written");
    symlink("..", scratch.at("a/loop")).expect("linked");
    assert_eq!(
        paths(&scratch, true),
        [".gitignore", ".hidden", "a/b.rs", "deep/.ignore", "deep/target/keep"]
    );
    assert_eq!(paths(&scratch, false).len(), 9);
}

#[test]
fn rules_above_the_root_hold_within_a_repository() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("sub/dir")).expect("made");
    for path in ["sub/dir/a.o", "sub/dir/a.c", "sub/x.tmp"] {
        fs::write(scratch.at(path), "").expect("written");
    }
    fs::write(scratch.at(".gitignore"), "*.o\n/sub/dir/a.c\n").expect("written");
    let inner = FilePath::parse(scratch.at("sub").as_os_str().as_encoded_bytes()).expect("absolute");
    let list = || {
        let (visitors, _) = walk(&inner, true, bounds(60_000), || Paths(Vec::new())).expect("walked");
        let mut all: Vec<String> = visitors.into_iter().flat_map(|paths| paths.0).collect();
        all.sort();
        all
    };
    assert_eq!(list(), ["dir/a.c", "dir/a.o", "x.tmp"], "no repository");
    fs::create_dir_all(scratch.at(".git/info")).expect("made");
    fs::write(scratch.at(".git/info/exclude"), "*.tmp\n").expect("written");
    assert_eq!(list(), Vec::<String>::new());
}

#[test]
fn many_files_in_one_directory_and_deep_trees_are_walked_whole() {
    let scratch = Scratch::new();
    for n in 0..5000 {
        fs::write(scratch.at(&format!("file-{n}")), "").expect("written");
    }
    let mut deep = scratch.root().to_owned();
    for n in 0..300 {
        deep.push("d");
        fs::create_dir(&deep).expect("made");
        // A second directory at every level keeps the one above it open.
        fs::create_dir(deep.join("e")).expect("made");
        fs::write(deep.join("e/f"), n.to_string()).expect("written");
    }
    assert_eq!(paths(&scratch, true).len(), 5300);
}

#[test]
fn a_walk_ends_with_its_time() {
    let scratch = Scratch::new();
    for n in 0..2000 {
        fs::write(scratch.at(&format!("file-{n}")), "").expect("written");
    }
    struct Slow;
    impl Visitor for Slow {
        fn file(&mut self, _: &Found<'_>) -> bool {
            std::thread::sleep(Duration::from_millis(1));
            true
        }
    }
    let root = FilePath::parse(scratch.root().as_os_str().as_encoded_bytes()).expect("absolute");
    let begun = Instant::now();
    let (_, walked) = walk(&root, true, bounds(100), || Slow).expect("walked");
    assert_eq!(walked.over, Some(Over::Late));
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn directories_that_are_swapped_for_symlinks_never_lead_elsewhere() {
    let outside = Scratch::new();
    fs::write(outside.at("secret"), "").expect("written");
    let scratch = Scratch::new();
    for n in 0..50 {
        fs::create_dir(scratch.at(&format!("d{n}"))).expect("made");
        fs::write(scratch.at(&format!("d{n}/f")), "").expect("written");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for n in 0..50 {
                    let (from, to) = (scratch.at(&format!("d{n}")), scratch.at(&format!("moved{n}")));
                    let _ = fs::rename(&from, &to);
                    let _ = symlink(outside.root(), &from);
                    let _ = fs::remove_file(&from);
                    let _ = fs::rename(&to, &from);
                }
            }
        });
        for _ in 0..100 {
            assert!(!paths(&scratch, true).iter().any(|path| path.ends_with("secret")));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
