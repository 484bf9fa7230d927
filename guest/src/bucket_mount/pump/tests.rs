use super::*;
use std::fs::File;
use std::os::unix::net::UnixListener;

/// A device that takes everything, and a message that waits for an answer.
fn pump(socket: PathBuf, patience: Duration) -> Pump {
    let device = File::options().read(true).write(true).open("/dev/null").unwrap();
    let mut pump = Pump::new(device.into(), socket, "id".into(), c"/nowhere".into(), patience);
    let mut message = vec![0; 40];
    message[4] = 3;
    message[8] = 7;
    assert!(pump.take(message).is_ok());
    pump
}

fn socket(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("cay-pump-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn a_server_that_hangs_up_at_once_is_as_good_as_none() {
    let path = socket("none");
    let listener = UnixListener::bind(&path).unwrap();
    let mut pump = pump(path.clone(), Duration::from_millis(50));
    assert_eq!(pump.waiting.len(), 1);
    pump.dial().unwrap();
    pump.lose_server();
    assert_eq!(pump.waiting.len(), 1, "it has waited less than it may");
    std::thread::sleep(Duration::from_millis(60));
    pump.dial().unwrap();
    pump.lose_server();
    assert!(pump.waiting.is_empty());
    assert_eq!(pump.held, 0);
    drop(listener);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_server_that_has_answered_is_waited_for_anew() {
    let path = socket("anew");
    let listener = UnixListener::bind(&path).unwrap();
    let mut pump = pump(path.clone(), Duration::from_millis(50));
    pump.dial().unwrap();
    std::thread::sleep(Duration::from_millis(60));
    pump.answered = true;
    pump.lose_server();
    assert_eq!(pump.waiting.len(), 1);
    drop(listener);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn answers_are_taken_in_any_pieces_and_nothing_else_is() {
    let mut bytes = Vec::new();
    for unique in [7u64, 9, 0] {
        bytes.extend_from_slice(&20u32.to_le_bytes());
        bytes.extend_from_slice(&0i32.to_le_bytes());
        bytes.extend_from_slice(&unique.to_le_bytes());
        bytes.extend_from_slice(&[1; 4]);
    }
    for size in 1..bytes.len() {
        let mut pump = pump(socket("pieces"), Duration::from_secs(1));
        for piece in bytes.chunks(size) {
            pump.coming.extend_from_slice(piece);
            assert!(matches!(pump.take_answers(), Ok(Ok(()))));
        }
        assert!(pump.waiting.is_empty() && pump.coming.is_empty() && pump.answered);
    }
}

#[test]
fn an_answer_of_a_wrong_length_ends_the_connection_and_keeps_the_message() {
    for length in [0u32, 15, MOST_MESSAGE as u32 + 1, u32::MAX] {
        let mut pump = pump(socket("length"), Duration::from_secs(1));
        pump.coming.extend_from_slice(&length.to_le_bytes());
        pump.coming.extend_from_slice(&[0; 28]);
        assert!(matches!(pump.take_answers(), Ok(Err(_))));
        assert_eq!(pump.waiting.len(), 1);
    }
}

#[test]
fn messages_of_any_bytes_are_taken_or_left() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut pump = pump(socket("any"), Duration::from_secs(1));
    for _ in 0..20_000 {
        let length = (next() % 80) as usize;
        let mut message: Vec<u8> = (0..length).map(|_| next() as u8).collect();
        if length > 8 && next() % 2 == 0 {
            message[4..8].copy_from_slice(&((next() % 50) as u32).to_le_bytes());
        }
        let _ = pump.take(message);
    }
    assert_eq!(pump.held, pump.waiting.values().map(Vec::len).sum::<usize>());
}
