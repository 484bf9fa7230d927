//! A stream that reads a command's output.

use crate::transport::connection::Connection;
use crate::transport::frame::MAX_DATA;
use crate::value::Value;

use super::command::Command;

/// Where a stream is in its command's output.
pub struct Reader {
    /// Of the command.
    pub key: u64,
    /// The next byte to be sent.
    position: u64,
    /// Where it began.
    from: u64,
    /// The command was there before the stream.
    existing: bool,
    started: bool,
    /// Payload of messages that were sent: acknowledged like output, but not output.
    message_bytes: u64,
    /// Output that was skipped as a gap: never sent, so never acknowledged.
    skipped: u64,
    granted: u64,
    /// It waits in the queue of ready streams.
    pub queued: bool,
}

/// What came of one step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// There may be more to send.
    More,
    /// Nothing to send, or no credit.
    Waiting,
    /// The stream is done.
    Done,
}

impl Reader {
    /// Reads the command `key` from `offset` on.
    pub fn new(key: u64, offset: u64, existing: bool) -> Reader {
        Reader {
            key,
            position: offset,
            from: offset,
            existing,
            started: false,
            message_bytes: 0,
            skipped: 0,
            granted: 0,
            queued: false,
        }
    }

    /// The server has taken `bytes` more; everything before the returned offset is acknowledged.
    pub fn credit(&mut self, bytes: u32) -> u64 {
        self.granted += u64::from(bytes);
        let output = self.granted.saturating_sub(self.message_bytes);
        (self.from + self.skipped + output).min(self.position)
    }

    /// Sends at most one frame.
    pub fn step(&mut self, stream: u32, command: &Command, connection: &mut Connection) -> Step {
        if command.pid == 0 || !connection.may_send(stream) {
            return Step::Waiting;
        }
        if !self.started {
            self.started = true;
            self.position = self.position.min(command.log.total());
            self.from = self.position;
            let message = Value::map([
                ("event", "started".into()),
                ("pid", i64::from(command.pid).into()),
                ("offset", (self.position as i64).into()),
                ("existing", self.existing.into()),
            ]);
            self.message_bytes += connection.message(stream, &message) as u64;
            return Step::More;
        }
        let kept_from = command.log.kept_from();
        if self.position < kept_from {
            let bytes = kept_from - self.position;
            self.position = kept_from;
            self.skipped += bytes;
            let message = Value::map([("event", "gap".into()), ("bytes", (bytes as i64).into())]);
            self.message_bytes += connection.message(stream, &message) as u64;
            return Step::More;
        }
        if let Some((channel, bytes)) = command.log.at(self.position, MAX_DATA) {
            connection.data(stream, channel, bytes);
            self.position += bytes.len() as u64;
            return Step::More;
        }
        let Some(end) = command.end else { return Step::Waiting };
        let mut entries = vec![("event".to_owned(), "end".into())];
        entries.extend(end.entries());
        entries.push(("offset".to_owned(), (command.log.total() as i64).into()));
        connection.message(stream, &Value::Map(entries));
        connection.end(stream);
        Step::Done
    }
}
