use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

fn listening(callers: &mut NoiseListener, poller: &Poller, key: &[u8]) -> Result<u16, Failure> {
    callers.listen(
        &Value::map([
            ("port", callers.port().map_or(0, i64::from).into()),
            ("key", Value::Bytes(key.to_vec())),
        ]),
        poller,
    )
}

/// Lets what has arrived be seen, and hands on what the loop would.
fn turn(callers: &mut NoiseListener, poller: &Poller) -> Option<NoiseStream> {
    let mut ready = Vec::new();
    let mut arrived = None;
    poller.wait(20, &mut ready);
    for event in ready {
        match event.token {
            Token::Door => callers.accept(poller),
            Token::Caller(number) => arrived = callers.ready(number, poller).or(arrived),
            token => panic!("{token:?} is not watched"),
        }
    }
    arrived
}

#[test]
fn what_is_not_a_port_or_a_key_is_refused() {
    let (mut callers, poller) = (NoiseListener::default(), Poller::new().unwrap());
    assert_eq!(listening(&mut callers, &poller, &[1; 31]).unwrap_err().code, "invalid_argument");
    for port in [-1, 65_536] {
        let request = Value::map([("port", port.into()), ("key", Value::Bytes(vec![1; 32]))]);
        assert_eq!(callers.listen(&request, &poller).unwrap_err().code, "invalid_argument");
    }
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let request = Value::map([
        ("port", i64::from(taken.local_addr().unwrap().port()).into()),
        ("key", Value::Bytes(vec![1; 32])),
    ]);
    assert_eq!(callers.listen(&request, &poller).unwrap_err().code, "failed_precondition");
    assert_eq!(callers.port(), None);
}

#[test]
fn a_flood_of_silent_callers_is_bounded_and_nonsense_is_sent_away_at_once() {
    let (mut callers, poller) = (NoiseListener::default(), Poller::new().unwrap());
    let port = listening(&mut callers, &poller, &[1; 32]).unwrap();
    let flood: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    for _ in 0..20 {
        assert!(turn(&mut callers, &poller).is_none());
    }
    assert_eq!(callers.waiting.len(), MAX_CALLERS);
    let mut last = flood.last().unwrap();
    last.write_all(&[0xff; FIRST]).unwrap();
    turn(&mut callers, &poller);
    assert_eq!(callers.waiting.len(), MAX_CALLERS - 1);
    assert_eq!(last.read(&mut [0; 8]).unwrap_or(0), 0);
    drop(flood);
    for _ in 0..5 {
        turn(&mut callers, &poller);
    }
    assert!(!callers.any());
}

#[test]
fn a_new_key_sends_away_who_waits_and_keeps_the_port() {
    let (mut callers, poller) = (NoiseListener::default(), Poller::new().unwrap());
    let port = listening(&mut callers, &poller, &[1; 32]).unwrap();
    let mut caller = TcpStream::connect(("127.0.0.1", port)).unwrap();
    turn(&mut callers, &poller);
    assert!(callers.any());
    assert_eq!(listening(&mut callers, &poller, &[2; 32]).unwrap(), port);
    assert!(!callers.any());
    assert_eq!(caller.read(&mut [0; 8]).unwrap_or(0), 0);
}
