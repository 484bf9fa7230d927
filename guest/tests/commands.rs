//! Commands, against the real binary as an ordinary process of this machine.
#![allow(missing_docs)]

mod client;

use cay_guest::transport::frame::Kind;
use cay_guest::value::Value;
use client::{Client, Frame, alive, argv, eventually, is_root, op, shell, with};

#[test]
fn a_command_says_what_it_wrote_and_how_it_ended() {
    let mut client = Client::start();
    let outcome = client.run(shell("a", "echo out; echo err >&2; exit 7")).unwrap();
    assert_eq!(
        (outcome.out().as_str(), &outcome.stderr[..], outcome.kind.as_str(), outcome.code),
        ("out\n", &b"err\n"[..], "exited", Some(7))
    );
    assert_eq!(outcome.offset, 8);
    assert!(outcome.pid > 0 && !outcome.existing);
}

#[test]
fn a_command_ends_in_one_of_the_ways_there_are() {
    let mut client = Client::start();
    assert_eq!(client.run(argv("zero", &["true"])).unwrap().code, Some(0));
    let outcome = client.run(shell("signalled", "kill -TERM $$")).unwrap();
    assert_eq!((outcome.kind.as_str(), outcome.signal), ("signalled", Some(15)));
    let outcome = client.run(with(shell("late", "sleep 60"), "timeoutMs", 100)).unwrap();
    assert_eq!((outcome.kind.as_str(), outcome.signal), ("timed_out", None));
    let outcome = client.run(shell("killed", "kill -9 $$")).unwrap();
    assert_eq!((outcome.kind.as_str(), outcome.signal), ("signalled", Some(9)));
}

#[test]
fn a_command_that_cannot_be_started_says_why() {
    let mut client = Client::start();
    let detail =
        |failure: &Value, key: &str| failure.get("details").and_then(|details| details.get(key)).cloned();
    let failure = client.run(argv("a", &["no-such-program-anywhere"])).unwrap_err();
    assert_eq!(
        (failure.text("code"), detail(&failure, "what"), detail(&failure, "exitCode")),
        (Some("not_found"), Some("command".into()), Some(127.into()))
    );
    let failure = client.run(argv("b", &["/etc/passwd"])).unwrap_err();
    assert_eq!(
        (failure.text("code"), detail(&failure, "exitCode")),
        (Some("permission_denied"), Some(126.into()))
    );
    let failure = client.run(argv("c", &["/tmp"])).unwrap_err();
    assert_eq!(
        (failure.text("code"), detail(&failure, "exitCode")),
        (Some("permission_denied"), Some(126.into()))
    );
    let failure = client.run(with(argv("d", &["true"]), "cwd", "/no/such/place")).unwrap_err();
    assert_eq!((failure.text("code"), detail(&failure, "what")), (Some("not_found"), Some("workdir".into())));
    let failure = client.run(with(argv("e", &["true"]), "user", "nobody-of-that-name")).unwrap_err();
    assert_eq!((failure.text("code"), detail(&failure, "what")), (Some("not_found"), Some("user".into())));
    let failure = client.run(argv("f", &["/etc/passwd/x"])).unwrap_err();
    assert_eq!(detail(&failure, "exitCode"), Some(127.into()));
    for bad in ["", "a b", "ü", &"x".repeat(129)] {
        assert_eq!(client.run(argv(bad, &["true"])).unwrap_err().text("code"), Some("invalid_argument"));
    }
    assert!(
        matches!(client.call(op("commands")).unwrap().get("commands"), Some(Value::Array(list)) if list.is_empty())
    );
}

#[test]
fn the_environment_is_what_was_asked_for_and_the_defaults() {
    let mut client = Client::start();
    let env = Value::map([("A", "1 2".into()), ("HOME", "/elsewhere".into())]);
    let out = client.run(with(argv("a", &["env"]), "env", env)).unwrap().out();
    let mut names: Vec<&str> = out.lines().map(|line| line.split('=').next().unwrap()).collect();
    names.sort();
    let characters = names.iter().position(|name| *name == "LC_CTYPE").map(|at| names.remove(at));
    assert!(characters.is_some() || !std::path::Path::new("/usr/lib/locale/C.utf8").exists());
    assert_eq!(names, ["A", "HOME", "LOGNAME", "PATH", "SHELL", "USER"]);
    assert!(
        out.contains("A=1 2\n")
            && out.contains("HOME=/elsewhere\n")
            && out.contains("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
    );
}

#[test]
fn a_language_that_was_asked_for_is_the_only_one() {
    let mut client = Client::start();
    for (id, name) in [("a", "LANG"), ("b", "LC_ALL")] {
        let env = Value::map([(name, "C".into())]);
        let out = client.run(with(argv(id, &["env"]), "env", env)).unwrap().out();
        assert!(!out.contains("LC_CTYPE=") && out.contains(&format!("{name}=C\n")));
    }
}

#[test]
fn a_command_starts_with_clean_signals_and_descriptors_in_a_session_of_its_own() {
    let mut client = Client::start();
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l; cat /proc/$$/oom_score_adj; umask; ps -o sid= -p $$ | tr -d ' '; echo $$; pwd";
    let out = client.run(shell("a", script)).unwrap().out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "SigBlk:\t0000000000000000");
    assert_eq!(lines[1], "SigIgn:\t0000000000000000");
    assert_eq!(lines[2], "4");
    assert_eq!(lines[3], "500");
    assert_eq!(lines[4], "0022");
    assert_eq!(lines[5], lines[6]);
    assert_eq!(lines[7], "/tmp");
}

#[test]
fn a_command_runs_as_its_user() {
    if !is_root() {
        eprintln!("not tried: only root can act as others");
        return;
    }
    let mut client = Client::start();
    let out = client
        .run(with(shell("a", "id -u; id -g; id -G; grep CapEff /proc/self/status"), "user", "12345:23456"))
        .unwrap()
        .out();
    assert_eq!(out, "12345\n23456\n23456\nCapEff:\t0000000000000000\n");
}

#[test]
fn killing_reaches_what_daemonised_itself() {
    let mut client = Client::start();
    // A double fork with sessions of their own and nothing in the environment that could give it away.
    let script = "(setsid env -i sh -c '(setsid sleep 1000 & echo $!) ; sleep 1000 & echo $!' ) & sleep 0.2; echo ready; sleep 1000";
    for (id, timeout) in [("killed", false), ("late", true)] {
        let request = if timeout { with(shell(id, script), "timeoutMs", 1500) } else { shell(id, script) };
        let stream = client.open(request);
        client.started(stream);
        let mut text = String::new();
        while !text.contains("ready") {
            match client.next(stream) {
                Frame::Data(_, bytes) => text += &String::from_utf8_lossy(&bytes),
                other => panic!("{other:?}"),
            }
        }
        let pids: Vec<i64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(pids.len(), 2, "{text}");
        assert!(pids.iter().all(|pid| alive(*pid)));
        if !timeout {
            client.call(with(with(op("signal"), "id", id), "signal", 9)).unwrap();
        }
        let outcome = client.finish(stream).unwrap();
        assert_eq!(outcome.kind, if timeout { "timed_out" } else { "signalled" });
        eventually("all are gone", || !pids.iter().any(|pid| alive(*pid)));
    }
}

#[test]
fn a_daemon_left_behind_lives_and_its_output_is_thrown_away() {
    let mut client = Client::start();
    let stream =
        client.open(shell("a", "(sleep 0.3; echo late; echo late >&2; sleep 1000) & echo $!; exit 3"));
    let outcome = client.finish(stream).unwrap();
    let pid: i64 = outcome.out().trim().parse().unwrap();
    assert_eq!(outcome.code, Some(3));
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert!(alive(pid), "it was not stopped by SIGPIPE");
    let again = client.run(with(with(op("attach"), "id", "a"), "offset", 0)).unwrap();
    assert_eq!((again.stdout, again.existing), (outcome.stdout, true));
    let failure = client.call(with(with(op("signal"), "id", "a"), "signal", 15)).unwrap_err();
    assert_eq!(failure.text("code"), Some("failed_precondition"));
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
}

#[test]
fn standard_input_arrives_and_ends() {
    let mut client = Client::start();
    let stream = client.open(with(argv("a", &["wc", "-c"]), "stdin", true));
    client.started(stream);
    let piece = vec![b'x'; 50_000];
    let mut credit = 262_144i64;
    let mut wait_for_credit = |client: &mut Client, spend: i64| {
        while credit <= 0 {
            if let Frame::Credit(amount) = client.next(stream) {
                credit += i64::from(amount);
            }
        }
        credit -= spend;
    };
    for _ in 0..200 {
        wait_for_credit(&mut client, piece.len() as i64);
        client.data(stream, &piece);
    }
    wait_for_credit(&mut client, 0);
    client.send_map(Kind::Message, stream, &Value::map([("closeStdin", true.into())]));
    assert_eq!(client.finish(stream).unwrap().out().trim(), "10000000");
    let outcome = client.run(argv("b", &["cat"])).unwrap();
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(0), 0), "without stdin there is nothing to read");
}

#[test]
fn input_that_nobody_reads_does_not_hold_up_the_end() {
    let mut client = Client::start();
    let stream = client.open(with(shell("a", "exec <&-; sleep 0.2; exit 5"), "stdin", true));
    client.started(stream);
    client.data(stream, &vec![1; 200_000]);
    assert_eq!(client.finish(stream).unwrap().code, Some(5));
}

#[test]
fn a_terminal_has_a_size_that_can_change() {
    let mut client = Client::start();
    let size = Value::map([("cols", 91.into()), ("rows", 33.into())]);
    let script = "trap 'stty size; exit' WINCH; stty size; test -t 0 && test -t 1 && test -t 2 && echo tty $TERM; while :; do sleep 0.05; done";
    let stream = client.open(with(shell("a", script), "pty", size));
    client.started(stream);
    let mut text = String::new();
    while !text.contains("tty") {
        match client.next(stream) {
            Frame::Data(3, bytes) => text += &String::from_utf8_lossy(&bytes),
            other => panic!("{other:?}"),
        }
    }
    assert!(text.contains("33 91") && text.contains("tty xterm-256color"), "{text}");
    client.call(with(with(with(op("resize"), "id", "a"), "cols", 120), "rows", 40)).unwrap();
    let outcome = client.finish(stream).unwrap();
    assert!(
        String::from_utf8_lossy(&outcome.pty).contains("40 120"),
        "{:?}",
        String::from_utf8_lossy(&outcome.pty)
    );
    let failure =
        client.call(with(with(with(op("resize"), "id", "a"), "cols", 120), "rows", 40)).unwrap_err();
    assert_eq!(failure.text("code"), Some("failed_precondition"));
}

#[test]
fn a_terminal_takes_keys_and_gives_all_of_its_output() {
    let mut client = Client::start();
    let size = Value::map([("cols", 80.into()), ("rows", 24.into())]);
    let stream = client.open(with(shell("a", "read line; echo got $line; seq 1 20000"), "pty", size.clone()));
    client.started(stream);
    client.data(stream, b"hello\n");
    let text = String::from_utf8_lossy(&client.finish(stream).unwrap().pty).into_owned();
    assert!(text.contains("got hello\r\n") && text.ends_with("20000\r\n"), "{} bytes", text.len());
    let stream = client.open(with(argv("b", &["cat"]), "pty", size.clone()));
    client.started(stream);
    client.send_map(Kind::Message, stream, &Value::map([("closeStdin", true.into())]));
    assert_eq!(client.finish(stream).unwrap().code, Some(0));
    let stream = client.open(with(argv("c", &["sleep", "1000"]), "pty", size));
    client.started(stream);
    client.data(stream, &[3]);
    assert_eq!(client.finish(stream).unwrap().signal, Some(2), "^C interrupts");
}

#[test]
fn the_same_id_is_the_same_command() {
    let mut client = Client::start();
    let first = client.run(shell("a", "echo $$")).unwrap();
    let second = client.run(shell("a", "echo $$")).unwrap();
    assert_eq!((&first.stdout, first.pid, second.existing), (&second.stdout, second.pid, true));
    assert_eq!(client.call(with(op("forget"), "id", "a")), Ok(Value::Map(vec![])));
    assert_eq!(client.call(with(op("forget"), "id", "a")), Ok(Value::Map(vec![])));
    let failure = client.run(with(with(op("attach"), "id", "a"), "offset", 0)).unwrap_err();
    assert_eq!(failure.text("code"), Some("not_found"));
    let third = client.run(shell("a", "echo $$")).unwrap();
    assert!(!third.existing && third.pid != first.pid);
}

#[test]
fn commands_are_listed_with_what_is_known_of_them() {
    let mut client = Client::start();
    client.run(shell("first", "echo hello; exit 4")).unwrap();
    let stream = client.open(argv("second", &["sleep", "1000"]));
    client.started(stream);
    let failure = client.call(with(op("forget"), "id", "second")).unwrap_err();
    assert_eq!(failure.text("code"), Some("failed_precondition"));
    let list = client.call(op("commands")).unwrap();
    let Some(Value::Array(list)) = list.get("commands") else { panic!("{list:?}") };
    assert_eq!(list.len(), 2);
    assert_eq!(
        (list[0].text("id"), list[0].text("kind"), list[0].int("code"), list[0].int("outputBytes")),
        (Some("first"), Some("exited"), Some(4), Some(6))
    );
    assert_eq!(
        (list[1].text("id"), list[1].get("kind"), list[1].get("argv")),
        (Some("second"), None, Some(&Value::Array(vec!["sleep".into(), "1000".into()])))
    );
    client.call(with(with(op("signal"), "id", "second"), "signal", 15)).unwrap();
    assert_eq!(client.finish(stream).unwrap().signal, Some(15));
}

#[test]
fn a_hundred_commands_at_once_all_end_well() {
    let mut client = Client::start();
    client.run(argv("first", &["true"])).unwrap();
    let before = client.descriptors();
    let streams: Vec<u32> = (0..100)
        .map(|n| client.open(shell(&format!("c{n}"), &format!("sleep 0.1; echo {n}; exit {}", n % 50))))
        .collect();
    for (n, stream) in streams.into_iter().enumerate() {
        let outcome = client.finish(stream).unwrap();
        assert_eq!((outcome.out(), outcome.code), (format!("{n}\n"), Some(n as i64 % 50)));
    }
    eventually("no descriptor is left", || client.descriptors() <= before);
    let children = format!("/proc/{0}/task/{0}/children", client.child.id());
    eventually("no process is left", || std::fs::read_to_string(&children).unwrap().trim().is_empty());
}

#[test]
fn a_supervisor_that_was_killed_does_not_take_its_command_along() {
    let mut client = Client::start();
    let stream = client.open(shell("a", "kill -9 $PPID; sleep 0.2; echo alive; exit 6"));
    let outcome = client.finish(stream).unwrap();
    assert_eq!((outcome.out().as_str(), outcome.code), ("alive\n", Some(6)));
    let stream = client.open(shell(
        "b",
        "kill -SEGV $PPID; kill -TERM $PPID; kill -9 $PPID; echo gone; sleep 1000 & sleep 1000",
    ));
    client.started(stream);
    while !matches!(client.next(stream), Frame::Data(..)) {}
    std::thread::sleep(std::time::Duration::from_millis(50));
    client.call(with(with(op("signal"), "id", "b"), "signal", 9)).unwrap();
    assert_eq!(client.finish(stream).unwrap().signal, Some(9));
    assert_eq!(client.run(argv("c", &["true"])).unwrap().code, Some(0));
}

/// The supervisor may be about to take the status of its command when it is killed.
#[test]
fn a_command_that_ends_while_its_supervisor_is_killed_has_an_end() {
    let mut client = Client::start();
    for round in 0..400 {
        let outcome = client.run(shell(&format!("a{round}"), "kill -9 $PPID; exit 6")).unwrap();
        assert_eq!((outcome.kind.as_str(), outcome.code), ("exited", Some(6)));
        let outcome = client.run(shell(&format!("b{round}"), "kill -9 $PPID; kill -9 $$")).unwrap();
        assert_eq!((outcome.kind.as_str(), outcome.signal), ("signalled", Some(9)));
    }
}

#[test]
fn a_supervisor_that_was_stopped_goes_on() {
    let mut client = Client::start();
    let outcome = client.run(shell("a", "kill -STOP $PPID; exit 6")).unwrap();
    assert_eq!((outcome.kind.as_str(), outcome.code), ("exited", Some(6)));
}

#[test]
fn orphans_are_reaped() {
    let mut client = Client::start();
    client.run(shell("a", "for i in 1 2 3 4 5; do (setsid sleep 0.05 &); done")).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", client.child.id());
    eventually("nobody is left", || std::fs::read_to_string(&children).unwrap().trim().is_empty());
}

#[test]
fn what_is_frozen_stands_still_and_answers_when_it_goes_on() {
    let mut client = Client::start();
    let outcome = client.run(shell("stopped", "sleep 60 & kill -STOP $!; echo $!")).unwrap();
    let theirs: i64 = outcome.out().trim().parse().unwrap();
    let stream = client.open(shell("counting", "while :; do sleep 0.02; done"));
    let ours = client.started(stream).int("pid").unwrap();
    for _ in 0..2 {
        client.call(op("freeze")).unwrap();
    }
    let state = |pid: i64| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().rsplit_once(") ").unwrap().1[..1]
            .to_owned()
    };
    eventually("it stands still", || state(ours) == "T");
    let waiting = client.open(argv("later", &["echo", "at last"]));
    let given_up = client.open(argv("never", &["true"]));
    client.send_map(
        Kind::Reset,
        given_up,
        &Value::map([("code", "cancelled".into()), ("message", "".into())]),
    );
    assert_eq!(state(ours), "T");
    client.call(op("stats")).unwrap();
    for _ in 0..2 {
        client.call(op("thaw")).unwrap();
    }
    assert_eq!(client.finish(waiting).unwrap().out(), "at last\n");
    eventually("it goes on", || state(ours) != "T");
    assert_eq!(state(theirs), "T", "who was stopped before stays so");
    let Some(Value::Array(list)) = client.call(op("commands")).unwrap().get("commands").cloned() else {
        panic!("no list")
    };
    assert!(list.iter().all(|one| one.text("id") != Some("never")));
}

#[test]
fn processes_are_still_as_long_as_somebody_holds_them() {
    let mut client = Client::start();
    let stream = client.open(shell("counting", "while :; do sleep 0.02; done"));
    let pid = client.started(stream).int("pid").unwrap();
    let state = || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().rsplit_once(") ").unwrap().1[..1]
            .to_owned()
    };
    let end = |client: &mut Client, stream: u32| client.send(Kind::End, 0, stream, &[]);
    let one = client.open(op("still"));
    client.message(one);
    let other = client.open(op("still"));
    client.message(other);
    eventually("it stands still", || state() == "T");
    let waiting = client.open(argv("later", &["echo", "at last"]));
    end(&mut client, one);
    // Neither the end of one of two nor a thaw that nobody froze for makes it go on.
    client.call(op("thaw")).unwrap();
    assert_eq!(state(), "T");
    client.call(op("freeze")).unwrap();
    end(&mut client, other);
    client.call(op("stats")).unwrap();
    assert_eq!(state(), "T", "a freeze outlasts what held it");
    client.call(op("thaw")).unwrap();
    assert_eq!(client.finish(waiting).unwrap().out(), "at last\n");
    eventually("it goes on", || state() != "T");
    let last = client.open(op("still"));
    client.message(last);
    eventually("it stands still again", || state() == "T");
    client.socket.shutdown(std::net::Shutdown::Both).unwrap();
    client.accept_again(&[]);
    eventually("the end of the connection lets it go on", || state() != "T");
}
