//! The rules, with right, wrong and random frames.

use super::*;
use crate::sys::Random;

fn frame(kind: Kind, channel: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&Header { length: payload.len(), kind, channel, stream }.encode()[..], payload].concat()
}

fn map(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

fn hello() -> Vec<u8> {
    frame(Kind::Hello, 0, 0, &map(&Value::map([("protocol", 1.into()), ("sandbox", "s".into())])))
}

fn open(stream: u32) -> Vec<u8> {
    frame(Kind::Open, 0, stream, &map(&Value::map([("op", "x".into())])))
}

fn greeted() -> Connection {
    let mut connection = Connection::new(&Value::map([]));
    connection.receive(&hello(), &mut Vec::new()).unwrap();
    connection.out.clear();
    connection
}

#[test]
fn nothing_is_heard_before_hello() {
    let mut connection = Connection::new(&Value::map([]));
    assert!(connection.receive(&open(1), &mut Vec::new()).is_err());
    assert!(
        Connection::new(&Value::map([]))
            .receive(&frame(Kind::Hello, 0, 0, &map(&Value::map([("protocol", 2.into())]))), &mut Vec::new())
            .is_err()
    );
}

#[test]
fn numbers_are_odd_and_ascend() {
    for bad in [2, 1, 3] {
        let mut connection = greeted();
        connection.receive(&open(3), &mut Vec::new()).unwrap();
        assert!(connection.receive(&open(bad), &mut Vec::new()).is_err(), "{bad}");
    }
}

#[test]
fn credit_may_be_overdrawn_by_one_frame_and_no_more() {
    let mut connection = greeted();
    // Events borrow the bytes that they came from.
    connection.receive(&open(1), &mut Vec::new()).unwrap();
    let big = frame(Kind::Data, 0, 1, &vec![7; 131_072]);
    connection.receive(&big, &mut Vec::new()).unwrap();
    connection.receive(&frame(Kind::Data, 0, 1, &[1; 131_071]), &mut Vec::new()).unwrap();
    connection.receive(&big, &mut Vec::new()).unwrap();
    assert!(connection.receive(&frame(Kind::Data, 0, 1, &[1]), &mut Vec::new()).is_err());
}

#[test]
fn room_is_granted_as_bytes_are_taken() {
    let mut connection = greeted();
    connection.receive(&open(1), &mut Vec::new()).unwrap();
    for _ in 0..100 {
        connection.receive(&frame(Kind::Data, 0, 1, &vec![7; 100_000]), &mut Vec::new()).unwrap();
        connection.taken(1, 100_000);
    }
    assert!(!connection.out.is_empty());
}

#[test]
fn a_task_that_takes_much_is_given_more_room_at_once_and_few_are() {
    let mut connection = greeted();
    let mut granted = [0; 12];
    for number in 0..12u32 {
        let id = 1 + 2 * number;
        connection.receive(&open(id), &mut Vec::new()).unwrap();
        connection.out.take();
        for _ in 0..20 {
            connection.receive(&frame(Kind::Data, 0, id, &vec![7; 100_000]), &mut Vec::new()).unwrap();
            connection.taken_fast(id, 100_000);
        }
        let mut parser = crate::transport::frame::Parser::default();
        let count = &mut granted[number as usize];
        let out = connection.out.take();
        parser
            .feed(&out, |parsed| {
                if let crate::transport::frame::Parsed::Frame(_, payload) = parsed {
                    *count += u32::from_be_bytes(payload.try_into().unwrap());
                }
                Ok(())
            })
            .unwrap();
    }
    let wide = granted.iter().filter(|bytes| **bytes > 2_000_000).count();
    assert_eq!(wide, 8, "{granted:?}");
    assert!(granted.iter().all(|bytes| *bytes <= 2_786_432), "{granted:?}");
    // One that ends makes room for another.
    assert!(!connection.taken_fast(23, 1));
    connection.reset(1, &crate::failure::Failure::new("cancelled", "It is over"));
    assert!(connection.taken_fast(23, 1));
}

#[test]
fn a_stream_is_over_when_both_have_ended() {
    let mut connection = greeted();
    connection.receive(&open(1), &mut Vec::new()).unwrap();
    connection.end(1);
    assert!(!connection.may_send(1));
    let end = frame(Kind::End, 0, 1, &[]);
    connection.receive(&end, &mut Vec::new()).unwrap();
    assert!(connection.streams.is_empty());
    let late = frame(Kind::Data, 0, 1, b"late");
    let mut events = Vec::new();
    connection.receive(&late, &mut events).unwrap();
    connection.receive(&end, &mut events).unwrap();
    assert!(events.is_empty());
}

#[test]
fn pings_are_answered() {
    let mut connection = greeted();
    connection.receive(&frame(Kind::Ping, 0, 0, b"abc"), &mut Vec::new()).unwrap();
    assert_eq!(connection.out.take(), frame(Kind::Pong, 0, 0, b"abc"));
}

/// Valid frames with random mistakes, in random pieces, with random answers from our side.
#[test]
fn random_frames_never_panic_and_streams_stay_bounded() {
    let mut random = Random::new(2026);
    let mut survived = 0;
    for round in 0..120_000 {
        let mut connection = greeted();
        let mut bytes = Vec::new();
        let mut next = 1;
        for _ in 0..random.below(8) {
            let stream =
                if random.below(8) == 0 { random.below(9) as u32 } else { 1 + 2 * random.below(4) as u32 };
            bytes.extend(match random.below(9) {
                0..=2 => {
                    next += 2;
                    open(next - 2)
                }
                3 => frame(Kind::Message, 0, stream, &map(&Value::map([("closeStdin", true.into())]))),
                4 => frame(Kind::Data, random.below(5) as u8, stream, &vec![0; random.below(600) as usize]),
                5 => {
                    frame(Kind::Credit, 0, stream, &(random.below(u64::from(u32::MAX)) as u32).to_be_bytes())
                }
                6 => frame(Kind::End, 0, stream, &[]),
                7 => frame(Kind::Reset, 0, stream, &map(&Value::map([("code", "cancelled".into())]))),
                _ => frame(Kind::Ping, 0, 0, &[1; 8]),
            });
        }
        if random.below(3) == 0 && !bytes.is_empty() {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        let mut events = Vec::new();
        let mut rest = &bytes[..];
        let mut whole = true;
        while !rest.is_empty() {
            let n = 1 + random.below(rest.len() as u64) as usize;
            if connection.receive(&rest[..n], &mut events).is_err() {
                whole = false;
                break;
            }
            rest = &rest[n..];
            for event in events.drain(..) {
                match (event, random.below(4)) {
                    (Event::Open(id, _), 0) => connection.reset(id, &Failure::new("internal", "x")),
                    (Event::Open(id, _), 1) => connection.end(id),
                    (Event::Data(id, _, bytes), _) => connection.taken(id, bytes.len()),
                    (Event::Message(id, _), _) => {
                        connection.message(id, &Value::Null);
                    }
                    (Event::Credit(id, _), _) => connection.data(id, 1, b"out"),
                    _ => {}
                }
            }
            assert!(connection.streams.len() <= 8, "round {round}");
        }
        survived += usize::from(whole);
    }
    assert!(survived > 20_000, "{survived} rounds without a mistake");
}
