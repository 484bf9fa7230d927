//! Tests of `reach.rs`.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};

use crate::task::Stopped;
use crate::users::Identity;
use crate::value::Value;

use super::super::run_reaching;
use super::super::test_stream::{Scratch, TestStream, code};
use super::*;

const USER: u32 = 4321;

/// On a thread of its own, which loses root's rights at need. Nothing without root.
fn reach(op: &str, entries: &[(&str, Value)]) -> Option<Result<TestStream, Stopped>> {
    if !sys::is_root() {
        println!("skipped: acting as another user needs root");
        return None;
    }
    let request = Value::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect());
    let user = Identity {
        uid: USER,
        gid: USER,
        groups: vec![USER],
        home: b"/".to_vec(),
        name: b"user".to_vec(),
        shell: b"/bin/sh".to_vec(),
    };
    let mut stream = TestStream::with([b"new".to_vec()]);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| run_reaching(op, &request, user, &mut stream)).join().expect("no panic")
    });
    Some(ran.map(|()| stream))
}

fn done(op: &str, entries: &[(&str, Value)]) {
    if let Some(Err(stopped)) = reach(op, entries) {
        panic!("{op}: {stopped:?}");
    }
}

fn refused(op: &str, entries: &[(&str, Value)]) {
    if let Some(result) = reach(op, entries) {
        assert_eq!(result.err().as_ref().map(code), Some("permission_denied"), "{op}");
    }
}

/// `home` is the user's, `etc` with `etc/secret` root's.
fn world() -> Option<Scratch> {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.root(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("changed");
    for name in ["home", "etc"] {
        fs::create_dir(scratch.at(name)).expect("made");
    }
    fs::write(scratch.at("etc/secret"), "old").expect("written");
    sys::is_root().then(|| {
        chown(scratch.at("home"), Some(USER), Some(USER)).expect("given");
        scratch
    })
}

fn owner(scratch: &Scratch, name: &str) -> (u32, u32) {
    let stat = fs::symlink_metadata(scratch.at(name)).expect("there");
    (stat.uid(), stat.gid())
}

#[test]
fn what_is_made_anywhere_is_the_users() {
    let Some(scratch) = world() else { return };
    done("write", &[("path", scratch.path("app/src/main"))]);
    done("write", &[("path", scratch.path("home/a/b"))]);
    done("mkdir", &[("path", scratch.path("srv/x/y")), ("mode", 0o700.into())]);
    for name in ["app", "app/src", "app/src/main", "home/a", "home/a/b", "srv", "srv/x", "srv/x/y"] {
        assert_eq!(owner(&scratch, name), (USER, USER), "{name}");
    }
    assert_eq!(owner(&scratch, ""), (0, 0));
    done("write", &[("path", scratch.path("etc/secret"))]);
    assert_eq!(
        (
            fs::read_to_string(scratch.at("etc/secret")).expect("there").as_str(),
            owner(&scratch, "etc/secret")
        ),
        ("new", (USER, USER))
    );
    done("move", &[("from", scratch.path("app/src/main")), ("to", scratch.path("etc/main"))]);
    done("remove", &[("path", scratch.path("etc/main"))]);
    assert_eq!(scratch.names("etc"), ["secret"]);
}

#[test]
fn links_of_root_are_followed_and_those_of_others_lead_where_the_user_may_go() {
    let Some(scratch) = world() else { return };
    symlink("etc", scratch.at("link")).expect("linked");
    done("write", &[("path", scratch.path("link/made"))]);
    assert_eq!(owner(&scratch, "etc/made"), (USER, USER));
    for (target, name) in [("../etc", "out"), ("../etc/secret", "file"), ("inside", "own")] {
        symlink(target, scratch.at(&format!("home/{name}"))).expect("linked");
        lchown(scratch.at(&format!("home/{name}")), Some(USER), Some(USER)).expect("given");
    }
    done("mkdir", &[("path", scratch.path("home/inside"))]);
    done("write", &[("path", scratch.path("home/own/file"))]);
    assert_eq!(owner(&scratch, "home/inside/file"), (USER, USER));
    refused("write", &[("path", scratch.path("home/out/secret"))]);
    refused("write", &[("path", scratch.path("home/out/new"))]);
    refused("write", &[("path", scratch.path("home/file"))]);
    refused("mkdir", &[("path", scratch.path("home/out/new"))]);
    refused("remove", &[("path", scratch.path("home/out/secret"))]);
    refused(
        "move",
        &[
            ("from", scratch.path("home/own")),
            ("to", scratch.path("home/out/secret")),
            ("overwrite", true.into()),
        ],
    );
    refused("move", &[("from", scratch.path("home/out/secret")), ("to", scratch.path("home/mine"))]);
    refused("xattrs", &[("path", scratch.path("home/file")), ("set", Value::map([("a", "b".into())]))]);
    assert_eq!(fs::read_to_string(scratch.at("etc/secret")).expect("there"), "old");
    assert_eq!((owner(&scratch, "etc/secret"), owner(&scratch, "etc")), ((0, 0), (0, 0)));
    done("remove", &[("path", scratch.path("home/file"))]);
}

#[test]
fn links_that_swap_while_it_works_change_nothing_of_roots() {
    let Some(scratch) = world() else { return };
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            take(&[], [USER; 3], [USER; 3]).expect("the user's");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = symlink("../etc", scratch.at("home/d"));
                let _ = fs::remove_file(scratch.at("home/d"));
                let _ = fs::create_dir(scratch.at("home/d"));
                let _ = fs::rename(scratch.at("home/d"), scratch.at("home/e"));
                let _ = fs::remove_dir_all(scratch.at("home/e"));
            }
        });
        for _ in 0..500 {
            let _ = reach("write", &[("path", scratch.path("home/d/secret"))]);
            let _ = reach("mkdir", &[("path", scratch.path("home/d/new"))]);
            let _ = reach("mkdir", &[("path", scratch.path("home/d"))]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(scratch.names("etc"), ["secret"]);
    assert_eq!(fs::read_to_string(scratch.at("etc/secret")).expect("there"), "old");
    assert_eq!((owner(&scratch, "etc/secret"), owner(&scratch, "etc")), ((0, 0), (0, 0)));
}

#[test]
fn a_directory_of_roots_that_takes_the_place_of_a_new_one_stays_roots() {
    let Some(scratch) = world() else { return };
    let mode = |name: &str, mode| {
        fs::set_permissions(scratch.at(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
    };
    fs::create_dir(scratch.at("home/roots")).expect("made");
    fs::write(scratch.at("home/roots/kept"), "").expect("written");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            take(&[], [USER; 3], [USER; 3]).expect("the user's");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Only root can make one here, and then the user can take it away.
                let _ = mode("home", 0o555);
                while !scratch.at("home/new").exists() && !stop.load(std::sync::atomic::Ordering::Relaxed) {}
                let _ = mode("home", 0o755);
                let _ = fs::rename(scratch.at("home/new"), scratch.at("home/old"));
                let _ = fs::rename(scratch.at("home/roots"), scratch.at("home/new"));
                let _ = fs::rename(scratch.at("home/new"), scratch.at("home/roots"));
                let _ = fs::remove_dir(scratch.at("home/old"));
                let _ = fs::remove_dir(scratch.at("home/new"));
            }
        });
        for _ in 0..3000 {
            let _ = reach("mkdir", &[("path", scratch.path("home/new"))]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let found = ["home/roots", "home/new", "home/old"]
        .into_iter()
        .find(|name| scratch.at(&format!("{name}/kept")).exists());
    assert_eq!(owner(&scratch, found.expect("not empty, so nobody removes it")), (0, 0));
}

/// Writers that begin together, round after round, so that some find a directory missing that another makes.
#[test]
fn writers_in_parallel_share_the_directories_that_they_make() {
    let Some(scratch) = world() else { return };
    for round in 0..200 {
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (scratch, start) = (&scratch, &start);
                scope.spawn(move || {
                    start.wait();
                    // One below the user's directory, and one where the user may make nothing.
                    for top in ["home", "etc"] {
                        let name = format!("{top}/{round}/a/b");
                        done("mkdir", &[("path", scratch.path(&name))]);
                        done("write", &[("path", scratch.path(&format!("{name}/c/{writer}")))]);
                    }
                });
            }
        });
        assert_eq!(scratch.names(&format!("home/{round}/a/b/c")), ["0", "1", "2", "3"]);
        assert_eq!(owner(&scratch, &format!("etc/{round}/a/b/c")), (USER, USER));
    }
}
