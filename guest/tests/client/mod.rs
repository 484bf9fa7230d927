//! A small server's side of the protocol, for tests: it starts the real binary and talks to it.
#![allow(dead_code, missing_docs)]

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cay_guest::transport::frame::{HEADER, Header, Kind};
use cay_guest::value::Value;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// One frame from the guest.
#[derive(Clone, Debug)]
pub enum Frame {
    Message(Value),
    Data(u8, Vec<u8>),
    Credit(u32),
    End,
    Reset(Value),
}

/// A running guest and our connection to it.
pub struct Client {
    pub directory: PathBuf,
    pub child: Child,
    listener: UnixListener,
    pub socket: UnixStream,
    pub boot: Vec<u8>,
    next: u32,
    inbox: HashMap<u32, VecDeque<Frame>>,
    pending: Vec<u8>,
    /// Grant credit for what comes, as a reader that keeps up would.
    pub grant: bool,
}

/// What a command did.
#[derive(Debug, Default)]
pub struct Outcome {
    pub pid: i64,
    pub existing: bool,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub pty: Vec<u8>,
    pub gaps: i64,
    pub kind: String,
    pub code: Option<i64>,
    pub signal: Option<i64>,
    pub offset: i64,
}

impl Outcome {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

pub fn shell(id: &str, script: &str) -> Vec<(String, Value)> {
    vec![
        ("op".into(), "exec".into()),
        ("id".into(), id.into()),
        ("shell".into(), script.into()),
        ("user".into(), me().as_str().into()),
        ("cwd".into(), "/tmp".into()),
    ]
}

pub fn argv(id: &str, words: &[&str]) -> Vec<(String, Value)> {
    let words = words.iter().map(|word| (*word).into()).collect();
    vec![
        ("op".into(), "exec".into()),
        ("id".into(), id.into()),
        ("argv".into(), Value::Array(words)),
        ("user".into(), me().as_str().into()),
        ("cwd".into(), "/".into()),
    ]
}

pub fn with(mut request: Vec<(String, Value)>, key: &str, value: impl Into<Value>) -> Vec<(String, Value)> {
    request.retain(|(name, _)| name != key);
    request.push((key.into(), value.into()));
    request
}

pub fn op(name: &str) -> Vec<(String, Value)> {
    vec![("op".into(), name.into())]
}

/// Who runs the tests.
pub fn me() -> String {
    unsafe { format!("{}:{}", libc::geteuid(), libc::getegid()) }
}

pub fn is_root() -> bool {
    unsafe { libc::geteuid() == 0 }
}

impl Client {
    pub fn start() -> Client {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("cay-guest-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("guest.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_cay-guest"))
            .arg("dial")
            .arg(&path)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut client = Client {
            directory,
            child,
            listener,
            socket,
            boot: Vec::new(),
            next: 1,
            inbox: HashMap::new(),
            pending: Vec::new(),
            grant: true,
        };
        client.greet(&[]);
        client
    }

    pub fn greet(&mut self, more: &[(&str, Value)]) {
        self.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (header, payload) = self.read_frame();
        assert_eq!(header.kind, Kind::Hello);
        let hello = Value::decode(&payload).unwrap();
        assert_eq!(hello.int("protocol"), Some(1));
        self.boot = hello.bytes("boot").unwrap().to_vec();
        let mut map = vec![
            ("protocol".to_owned(), Value::Int(1)),
            ("sandbox".to_owned(), "sbx_test".into()),
            ("incarnation".to_owned(), Value::Int(1)),
        ];
        map.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        self.send_map(Kind::Hello, 0, &Value::Map(map));
    }

    /// Waits for the guest to dial again.
    pub fn accept_again(&mut self, more: &[(&str, Value)]) {
        self.socket = self.listener.accept().unwrap().0;
        self.pending.clear();
        self.inbox.clear();
        self.next = 1;
        self.greet(more);
    }

    pub fn send(&mut self, kind: Kind, channel: u8, stream: u32, payload: &[u8]) {
        let header = Header { length: payload.len(), kind, channel, stream };
        self.socket.write_all(&[&header.encode()[..], payload].concat()).unwrap();
    }

    pub fn send_map(&mut self, kind: Kind, stream: u32, map: &Value) {
        let mut payload = Vec::new();
        map.encode(&mut payload);
        self.send(kind, 0, stream, &payload);
    }

    pub fn open(&mut self, request: Vec<(String, Value)>) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.send_map(Kind::Open, stream, &Value::Map(request));
        stream
    }

    pub fn data(&mut self, stream: u32, bytes: &[u8]) {
        for piece in bytes.chunks(65_536) {
            self.send(Kind::Data, 0, stream, piece);
        }
    }

    fn fill(&mut self, want: usize) {
        let mut buffer = vec![0u8; 262_144];
        while self.pending.len() < want {
            let n = self.socket.read(&mut buffer).expect("the guest answers in time");
            assert!(n > 0, "the guest closed the connection");
            self.pending.extend_from_slice(&buffer[..n]);
        }
    }

    pub fn read_frame(&mut self) -> (Header, Vec<u8>) {
        self.fill(HEADER);
        let header =
            Header::decode(self.pending[..HEADER].try_into().unwrap()).expect("the guest keeps the rules");
        self.fill(HEADER + header.length);
        let payload = self.pending[HEADER..HEADER + header.length].to_vec();
        self.pending.drain(..HEADER + header.length);
        (header, payload)
    }

    /// The next frame of a stream.
    pub fn next(&mut self, stream: u32) -> Frame {
        loop {
            if let Some(frame) = self.inbox.get_mut(&stream).and_then(VecDeque::pop_front) {
                return frame;
            }
            let (header, payload) = self.read_frame();
            if self.grant && matches!(header.kind, Kind::Message | Kind::Data) && header.length > 0 {
                self.send(Kind::Credit, 0, header.stream, &(header.length as u32).to_be_bytes());
            }
            let frame = match header.kind {
                Kind::Message => Frame::Message(Value::decode(&payload).unwrap()),
                Kind::Data => Frame::Data(header.channel, payload),
                Kind::Credit => Frame::Credit(u32::from_be_bytes(payload.try_into().unwrap())),
                Kind::End => Frame::End,
                Kind::Reset => Frame::Reset(Value::decode(&payload).unwrap()),
                Kind::Pong => continue,
                kind => panic!("unexpected {kind:?}"),
            };
            self.inbox.entry(header.stream).or_default().push_back(frame);
        }
    }

    pub fn message(&mut self, stream: u32) -> Value {
        loop {
            match self.next(stream) {
                Frame::Message(value) => return value,
                Frame::Credit(_) => {}
                other => panic!("expected a message, got {other:?}"),
            }
        }
    }

    /// The message of a request that has one answer, or its error.
    pub fn call(&mut self, request: Vec<(String, Value)>) -> Result<Value, Value> {
        let stream = self.open(request);
        match self.next(stream) {
            Frame::Message(value) => {
                assert!(matches!(self.next(stream), Frame::End));
                self.send(Kind::End, 0, stream, &[]);
                Ok(value)
            }
            Frame::Reset(failure) => Err(failure),
            other => panic!("expected an answer, got {other:?}"),
        }
    }

    pub fn started(&mut self, stream: u32) -> Value {
        let message = self.message(stream);
        assert_eq!(message.text("event"), Some("started"), "{message:?}");
        message
    }

    /// Reads a command to its end.
    pub fn finish(&mut self, stream: u32) -> Result<Outcome, Value> {
        let mut outcome = Outcome::default();
        loop {
            match self.next(stream) {
                Frame::Data(1, bytes) => outcome.stdout.extend(bytes),
                Frame::Data(2, bytes) => outcome.stderr.extend(bytes),
                Frame::Data(_, bytes) => outcome.pty.extend(bytes),
                Frame::Credit(_) => {}
                Frame::Reset(failure) => return Err(failure),
                Frame::End => {
                    self.send(Kind::End, 0, stream, &[]);
                    return Ok(outcome);
                }
                Frame::Message(message) => match message.text("event") {
                    Some("started") => {
                        outcome.pid = message.int("pid").unwrap();
                        outcome.existing = message.flag("existing");
                    }
                    Some("gap") => outcome.gaps += message.int("bytes").unwrap(),
                    Some("end") => {
                        outcome.kind = message.text("kind").unwrap().to_owned();
                        outcome.code = message.int("code");
                        outcome.signal = message.int("signal");
                        outcome.offset = message.int("offset").unwrap();
                    }
                    _ => panic!("unexpected {message:?}"),
                },
            }
        }
    }

    pub fn run(&mut self, request: Vec<(String, Value)>) -> Result<Outcome, Value> {
        let stream = self.open(request);
        self.finish(stream)
    }

    /// The guest's own descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Memory that the guest holds of its own. Pages of the program's file, which the kernel maps and takes
    /// away as it likes, do not count.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok())
            .unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Nobody but PID 1 takes everything along: what the guest started goes first.
        for _ in 0..200 {
            if cay_guest::process_table::kill_below(self.child.id() as i32) == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits until something is so.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn alive(pid: i64) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'),
        Err(_) => false,
    }
}
