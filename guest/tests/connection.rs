//! What happens when the connection ends, is full or is nonsense; ports and the rest.
#![allow(missing_docs)]

mod client;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use cay_guest::sys::Random;
use cay_guest::transport::frame::{Header, Kind};
use cay_guest::value::Value;
use client::{Client, Frame, argv, eventually, op, shell, with};

#[test]
fn a_command_outlives_the_connection_and_is_read_on_from_where_it_was() {
    let mut client = Client::start();
    let boot = client.boot.clone();
    let stream = client.open(shell("a", "echo one; sleep 0.4; echo two; sleep 0.4; echo three"));
    client.started(stream);
    assert!(matches!(client.next(stream), Frame::Data(1, bytes) if bytes == b"one\n"));
    client.socket.shutdown(std::net::Shutdown::Both).unwrap();
    client.accept_again(&[]);
    assert_eq!(client.boot, boot);
    let outcome = client.run(with(with(op("attach"), "id", "a"), "offset", 4)).unwrap();
    assert_eq!((outcome.out().as_str(), outcome.existing, outcome.offset), ("two\nthree\n", true, 14));
    let again = client.run(with(with(op("attach"), "id", "a"), "offset", 0)).unwrap();
    assert_eq!(again.out(), "one\ntwo\nthree\n");
    let beyond = client.run(with(with(op("attach"), "id", "a"), "offset", 99)).unwrap();
    assert_eq!((beyond.out().as_str(), beyond.code), ("", Some(0)));
}

#[test]
fn a_reset_detaches_and_nothing_more() {
    let mut client = Client::start();
    let stream = client.open(shell("a", "sleep 0.3; echo done"));
    client.started(stream);
    client.send_map(Kind::Reset, stream, &Value::map([("code", "cancelled".into()), ("message", "".into())]));
    assert_eq!(client.run(with(with(op("attach"), "id", "a"), "offset", 0)).unwrap().out(), "done\n");
}

#[test]
fn without_a_reader_a_command_waits_and_nothing_is_lost() {
    let mut client = Client::start();
    client.grant = false;
    let stream = client.open(with(shell("a", "head -c 5000000 /dev/zero; echo end >&2"), "keep", 600_000));
    client.started(stream);
    let mut got = 0;
    while got < 262_144 {
        if let Frame::Data(_, bytes) = client.next(stream) {
            got += bytes.len();
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    let list = client.call(op("commands")).unwrap();
    let Some(Value::Array(list)) = list.get("commands") else { panic!() };
    let written = list[0].int("outputBytes").unwrap();
    assert!((600_000..900_000).contains(&written), "{written} bytes were read from the command");
    assert_eq!(list[0].get("kind"), None);
    client.socket.shutdown(std::net::Shutdown::Both).unwrap();
    client.accept_again(&[]);
    client.grant = true;
    let outcome = client.run(with(with(op("attach"), "id", "a"), "offset", 0)).unwrap();
    assert_eq!((outcome.stdout.len(), outcome.gaps, &outcome.stderr[..]), (5_000_000, 0, &b"end\n"[..]));
}

#[test]
fn with_drop_a_command_goes_on_and_the_gap_is_told() {
    let mut client = Client::start();
    client.grant = false;
    let request = with(with(shell("a", "seq 1 500000"), "keep", 100_000), "overflow", "drop");
    let stream = client.open(request);
    client.started(stream);
    eventually("it ends although nobody reads", || {
        let list = client.call(op("commands")).unwrap();
        matches!(list.get("commands"), Some(Value::Array(list)) if list[0].text("kind") == Some("exited"))
    });
    client.send(Kind::Credit, 0, stream, &100_000_000u32.to_be_bytes());
    client.grant = true;
    let outcome = client.finish(stream).unwrap();
    assert!(outcome.gaps > 0 && outcome.out().ends_with("\n500000\n"));
    assert_eq!(outcome.stdout.len() as i64 + outcome.gaps, outcome.offset);
}

#[test]
fn one_stream_without_credit_does_not_hold_up_the_others() {
    let mut client = Client::start();
    client.grant = false;
    let full = client.open(shell("full", "cat /dev/zero"));
    client.started(full);
    std::thread::sleep(Duration::from_millis(100));
    for n in 0..20 {
        assert_eq!(client.run(argv(&format!("c{n}"), &["true"])).unwrap().code, Some(0));
    }
}

#[test]
fn a_hundred_megabytes_come_through() {
    let mut client = Client::start();
    let start = Instant::now();
    let stream = client.open(shell("a", "head -c 100000000 /dev/zero"));
    let mut got = 0;
    loop {
        match client.next(stream) {
            Frame::Data(1, bytes) => got += bytes.len(),
            Frame::End => break,
            _ => {}
        }
    }
    eprintln!("100 MB in {:?}, then {} KiB resident", start.elapsed(), client.resident_kib());
    assert_eq!(got, 100_000_000);
    client.call(with(op("forget"), "id", "a")).unwrap();
    eventually("memory is given back", || client.resident_kib() < 4096);
}

#[test]
fn garbage_ends_the_connection_and_not_the_guest() {
    let mut client = Client::start();
    let mut random = Random::new(11);
    let stream = client.open(argv("long", &["sleep", "1000"]));
    client.started(stream);
    for round in 0..40 {
        let mut bytes: Vec<u8> = (0..64 + random.below(5000)).map(|_| random.below(256) as u8).collect();
        if round % 2 == 0 {
            let header = Header { length: 40, kind: Kind::Open, channel: 0, stream: 1001 };
            bytes.splice(0..0, header.encode());
        }
        // The guest may close before all is written.
        let _ = client.socket.write_all(&bytes);
        let _ = client.socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = client.socket.read_to_end(&mut rest);
        client.accept_again(&[]);
    }
    let list = client.call(op("commands")).unwrap();
    assert!(
        matches!(list.get("commands"), Some(Value::Array(list)) if list.len() == 1 && list[0].get("kind").is_none())
    );
    assert!(client.child.try_wait().unwrap().is_none());
}

#[test]
fn a_hangup_is_obeyed_and_the_guest_dials_again() {
    let mut client = Client::start();
    let stream = client.open(argv("a", &["sleep", "1000"]));
    client.started(stream);
    let start = Instant::now();
    client.send_map(Kind::Hangup, 0, &Value::map([("dialAfterMs", 300.into())]));
    let mut rest = Vec::new();
    client.socket.read_to_end(&mut rest).unwrap();
    client.accept_again(&[]);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(client.run(argv("b", &["true"])).unwrap().code, Some(0));
}

#[test]
fn ports_are_seen_and_reached() {
    let mut client = Client::start();
    let watch = client.open(with(op("ports"), "watch", true));
    client.message(watch);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = i64::from(listener.local_addr().unwrap().port());
    let has = |message: &Value, key: &str| matches!(message.get(key), Some(Value::Array(list)) if list.iter().any(|entry| entry.int("port") == Some(port) && entry.text("address") == Some("127.0.0.1")));
    while !has(&client.message(watch), "opened") {}

    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        socket.write_all(&all).unwrap();
        socket.write_all(b"bye").unwrap();
    });
    let stream = client.open(with(op("connect"), "port", port));
    assert_eq!(client.message(stream), Value::Map(vec![]));
    client.data(stream, &[7; 200_000]);
    client.send(Kind::End, 0, stream, &[]);
    let mut back = Vec::new();
    loop {
        match client.next(stream) {
            Frame::Data(_, bytes) => back.extend(bytes),
            Frame::End => break,
            Frame::Credit(_) => {}
            other => panic!("{other:?}"),
        }
    }
    server.join().unwrap();
    assert_eq!((back.len(), back.ends_with(b"bye")), (200_003, true));
    while !has(&client.message(watch), "closed") {}
    let failure = client.call(with(op("connect"), "port", port)).unwrap_err();
    assert_eq!(failure.text("code"), Some("unavailable"));
    let v6 = TcpListener::bind("[::1]:0");
    if let Ok(v6) = v6 {
        let stream = client.open(with(op("connect"), "port", i64::from(v6.local_addr().unwrap().port())));
        assert_eq!(client.message(stream), Value::Map(vec![]));
    }
}

#[test]
fn statistics_and_unknown_operations() {
    let mut client = Client::start();
    let stats = client.call(op("stats")).unwrap();
    for key in ["processes", "memoryBytes", "memoryTotalBytes", "oomKills", "uptimeMs"] {
        assert!(stats.int(key).unwrap() >= 0, "{key}");
    }
    assert_eq!(client.call(op("nonsense")).unwrap_err().text("code"), Some("unsupported"));
    assert_eq!(client.call(vec![]).unwrap_err().text("code"), Some("unsupported"));
}

#[test]
fn files_are_served_by_threads() {
    let mut client = Client::start();
    let path = client.directory.join("big");
    let content: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let stream =
        client.open(with(with(op("read"), "path", path.to_str().unwrap()), "user", client::me().as_str()));
    let mut back = Vec::new();
    loop {
        match client.next(stream) {
            Frame::Data(_, bytes) => back.extend(bytes),
            Frame::End => break,
            Frame::Message(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(back == content);
}

#[test]
fn a_shutdown_asks_first_and_kills_then() {
    let mut client = Client::start();
    let kind = client.open(shell("kind", "trap 'echo asked; exit 0' TERM; while :; do sleep 0.02; done"));
    client.started(kind);
    let stubborn = client.open(shell("stubborn", "trap '' TERM; while :; do sleep 1000; done"));
    client.started(stubborn);
    std::thread::sleep(Duration::from_millis(200));
    client.call(with(op("shutdown"), "graceMs", 400)).unwrap();
    assert_eq!(client.finish(kind).unwrap().out(), "asked\n");
    assert!(client.child.wait().unwrap().success());
}

#[test]
fn an_idle_guest_is_small_and_sleeps() {
    let mut client = Client::start();
    client.run(argv("a", &["true"])).unwrap();
    let ticks = |client: &Client| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", client.child.id())).unwrap();
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        fields[10] + fields[11]
    };
    let switches = |client: &Client| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", client.child.id())).unwrap();
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
            .unwrap()
    };
    std::thread::sleep(Duration::from_millis(100));
    let (before, woken) = (ticks(&client), switches(&client));
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!((ticks(&client) - before, switches(&client) - woken), (0, 0));
    eprintln!("{} KiB resident", client.resident_kib());
}

#[test]
fn a_guest_that_serves_is_reached_through_a_bridge_and_the_newest_connection_wins() {
    let directory = std::env::temp_dir().join(format!("cay-guest-serve-{}", std::process::id()));
    let path = directory.join("made/guest.sock");
    let binary = env!("CARGO_BIN_EXE_cay-guest");
    let mut guest = std::process::Command::new(binary).arg("serve").arg(&path).spawn().unwrap();
    let bridge = |more: &[&str]| {
        std::process::Command::new(binary)
            .arg("bridge")
            .arg(&path)
            .args(more)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let hello = |bridge: &mut std::process::Child| {
        let mut header = [0u8; 12];
        let stdout = bridge.stdout.as_mut().unwrap();
        stdout.read_exact(&mut header).unwrap();
        let header = Header::decode(&header).unwrap();
        let mut payload = vec![0; header.length];
        stdout.read_exact(&mut payload).unwrap();
        (header.kind, Value::decode(&payload).unwrap())
    };
    let mut unused = bridge(&["later"]);
    let mut ahead = bridge(&["later"]);
    let mut first = bridge(&[]);
    assert_eq!(hello(&mut first).0, Kind::Hello);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut second = bridge(&[]);
    assert_eq!(hello(&mut second).0, Kind::Hello);
    assert!(first.wait().unwrap().success(), "the older connection is closed");
    ahead.stdin.as_mut().unwrap().write_all(&[0]).unwrap();
    assert_eq!(hello(&mut ahead).0, Kind::Hello, "one that was made ahead connects at its first byte");
    assert!(second.wait().unwrap().success());
    drop(unused.stdin.take());
    assert!(unused.wait().unwrap().success(), "one that was made ahead for nobody ends with its input");
    let mut second = ahead;
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success(), "the end of the input ends the bridge");
    guest.kill().unwrap();
    guest.wait().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}
