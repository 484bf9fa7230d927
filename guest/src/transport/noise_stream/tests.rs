use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;
use crate::sys::Random;
use crate::transport::frame::Kind;

const KEY: Key = [7; 32];

/// A caller's side: its first message, and what it makes of the answer.
fn call(key: &Key) -> (snow::HandshakeState, [u8; FIRST]) {
    let mut caller = builder(key).unwrap().build_initiator().unwrap();
    let mut first = [0; FIRST];
    first[1] = HANDSHAKE as u8;
    assert_eq!(caller.write_message(&[], &mut first[LENGTH..]), Ok(HANDSHAKE));
    (caller, first)
}

fn both() -> (TransportState, TransportState) {
    let (mut caller, first) = call(&KEY);
    let (reply, ours) = answer(&KEY, &first).unwrap();
    caller.read_message(&reply[LENGTH..], &mut []).unwrap();
    (caller.into_transport_mode().unwrap(), ours)
}

fn framed(transport: &mut TransportState, plain: &[u8]) -> Vec<u8> {
    let mut message = vec![0; LENGTH + plain.len() + TAG];
    let length = transport.write_message(plain, &mut message[LENGTH..]).unwrap();
    message[..LENGTH].copy_from_slice(&(length as u16).to_be_bytes());
    message
}

#[test]
fn who_has_the_key_gets_an_answer_that_only_the_same_caller_can_confirm() {
    let (mut theirs, mut ours) = both();
    let second: [u8; SECOND] = framed(&mut theirs, &[]).try_into().unwrap();
    let (_, mut others) = both();
    assert!(!confirms(&mut others, &second));
    assert!(!confirms(&mut ours, &[0; SECOND]));
    assert!(confirms(&mut ours, &second));
    assert!(!confirms(&mut ours, &second));
}

#[test]
fn who_has_another_key_or_talks_nonsense_gets_none() {
    assert!(answer(&KEY, &call(&[8; 32]).1).is_none());
    assert!(answer(&KEY, &[0; FIRST]).is_none());
    let (_, mut first) = call(&KEY);
    for at in 0..FIRST {
        first[at] ^= 1;
        assert!(answer(&KEY, &first).is_none(), "byte {at}");
        first[at] ^= 1;
    }
    assert!(answer(&KEY, &first).is_some());
    let mut random = Random::new(1);
    for _ in 0..500 {
        let mut nonsense = [0; FIRST];
        nonsense.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        nonsense[..LENGTH].copy_from_slice(&(HANDSHAKE as u16).to_be_bytes());
        assert!(answer(&KEY, &nonsense).is_none());
    }
}

/// Our end of a pair, and the other one.
fn pair(ours: TransportState) -> (NoiseStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (NoiseStream::new(near.into(), ours), far)
}

#[test]
fn bytes_arrive_in_order_however_they_were_cut() {
    let (mut theirs, ours) = both();
    let (mut sealed, mut far) = pair(ours);
    let mut random = Random::new(2);
    let (mut sent, mut wire) = (Vec::new(), Vec::new());
    for round in 0..200 {
        let largest = if round % 20 == 0 { MAX_PLAIN as u64 + 1 } else { 300 };
        let plain: Vec<u8> = (0..random.below(largest)).map(|_| random.below(256) as u8).collect();
        wire.extend(framed(&mut theirs, &plain));
        sent.extend(plain);
    }
    let (mut got, mut buffer) = (Vec::new(), vec![0; 131_072]);
    while !wire.is_empty() {
        let cut = (random.below(40_000) as usize + 1).min(wire.len());
        far.write_all(&wire.drain(..cut).collect::<Vec<u8>>()).unwrap();
        while let Received::Bytes { count, .. } = sealed.read(&mut buffer).unwrap() {
            got.extend_from_slice(&buffer[..count]);
        }
    }
    assert!(got == sent);
    drop(far);
    assert_eq!(sealed.read(&mut buffer), Ok(Received::Closed));
}

#[test]
fn a_message_that_was_changed_cut_short_or_repeated_ends_the_connection() {
    let changes: [fn(&mut Vec<u8>); 4] = [
        |message| message[5] ^= 1,
        |message| *message = vec![0, 0],
        |message| *message = vec![0, 3, 1, 2, 3],
        |message| message.extend(message.clone()),
    ];
    for change in changes {
        let (mut theirs, ours) = both();
        let (mut sealed, mut far) = pair(ours);
        let mut message = framed(&mut theirs, b"hello");
        change(&mut message);
        far.write_all(&message).unwrap();
        assert_eq!(sealed.read(&mut [0; 131_072]), Err(libc::EBADMSG));
    }
}

#[test]
fn frames_of_any_size_leave_in_whole_messages_as_the_reader_takes_them() {
    let (mut theirs, ours) = both();
    let (mut sealed, mut far) = pair(ours);
    let mut queue = WriteQueue::default();
    let mut plain = WriteQueue::default();
    for (stream, size) in [(1, 0), (3, 100), (5, 70_000), (7, 1_000_000), (9, 8_000), (11, 300_000)] {
        let payload: Vec<u8> = (0..size).map(|at| (at * 31) as u8).collect();
        queue.frame(Kind::Data, 1, stream, &payload);
        plain.frame(Kind::Data, 1, stream, &payload);
    }
    let reader = std::thread::spawn(move || {
        let (mut got, mut length, mut buffer) = (Vec::new(), [0; LENGTH], vec![0; MAX_MESSAGE]);
        while far.read_exact(&mut length).is_ok() {
            let message = &mut buffer[..usize::from(u16::from_be_bytes(length))];
            far.read_exact(message).unwrap();
            let mut opened = vec![0; MAX_PLAIN];
            let count = theirs.read_message(message, &mut opened).unwrap();
            got.extend_from_slice(&opened[..count]);
        }
        got
    });
    let mut buffer = vec![0; 131_072];
    while !sealed.write(&mut queue, &mut buffer).unwrap() {
        std::thread::yield_now();
    }
    drop(sealed);
    assert!(reader.join().unwrap() == plain.take());
}
