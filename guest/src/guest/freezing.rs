//! Freezing: all processes are stopped with SIGSTOP, and requests wait until they are thawed.
//!
//! This is for platforms that cannot freeze a sandbox from outside. The guest itself keeps running, so that
//! it can be asked to thaw.
//!
//! Processes are still for one of two reasons: a `freeze` was asked for, which lasts until `thaw`, or a
//! stream of `still` is open, which ends with its connection. They continue when neither is so.

use std::collections::HashSet;

use super::*;

/// How often processes are listed again, to find those that were started meanwhile.
const LOOKS: usize = 20;
/// A command that was being started appears a moment later.
const LOOK_AGAIN: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_secs(1)];

/// The state of a frozen sandbox.
#[derive(Default)]
pub(super) struct Frozen {
    /// `freeze` was asked for, and not `thaw` since.
    asked: bool,
    /// The open streams of `still`.
    holders: HashSet<u32>,
    /// Processes that we stopped, parents first. Processes that were stopped before are not in it and stay
    /// stopped.
    stopped: Vec<i32>,
    /// Waiting streams, and the events on them.
    streams: HashSet<u32>,
    events: Vec<Event<'static>>,
}

/// Requests that are answered while frozen.
fn goes_on(request: &Value) -> bool {
    matches!(
        request.text("op"),
        Some(
            "freeze" | "thaw" | "still" | "pack" | "stats" | "configure" | "shutdown" | "commands" | "listen"
        )
    )
}

impl Guest {
    /// Stops all processes until `thaw`. Does nothing if that was asked for already.
    pub(super) fn freeze(&mut self) {
        self.stop();
        if let Some(frozen) = &mut self.frozen {
            frozen.asked = true;
        }
    }

    /// Stops all processes for as long as the stream is open.
    pub(super) fn hold_still(&mut self, stream: u32) {
        self.stop();
        if let Some(frozen) = &mut self.frozen {
            frozen.holders.insert(stream);
        }
    }

    /// The stream of `hold_still` is over.
    pub(super) fn let_go(&mut self, stream: u32) {
        if self.frozen.as_mut().is_some_and(|frozen| frozen.holders.remove(&stream)) {
            self.go_on();
        }
    }

    fn stop(&mut self) {
        if self.frozen.is_none() && self.shutdown_at.is_none() {
            self.frozen = Some(Frozen::default());
            self.stop_all(0);
        }
    }

    /// Stops running processes until a listing finds no new one.
    pub(super) fn stop_all(&mut self, attempt: usize) {
        let Some(mut frozen) = self.frozen.take() else { return };
        for _ in 0..LOOKS {
            let new: Vec<i32> =
                self.running().into_iter().filter(|pid| !frozen.stopped.contains(pid)).collect();
            for pid in &new {
                // SAFETY: no pointers.
                unsafe { libc::kill(*pid, libc::SIGSTOP) };
            }
            if new.is_empty() {
                break;
            }
            frozen.stopped.extend(new);
        }
        self.frozen = Some(frozen);
        if let Some(delay) = LOOK_AGAIN.get(attempt) {
            self.context.timers.after(*delay, Timer::Freeze(attempt + 1));
        }
    }

    /// Takes `freeze` back. Does nothing if not frozen.
    pub(super) fn thaw(&mut self) {
        if let Some(frozen) = &mut self.frozen {
            frozen.asked = false;
        }
        self.go_on();
    }

    /// Continues all processes, and handles the requests that waited, unless there is a reason to be still.
    fn go_on(&mut self) {
        if self.frozen.as_ref().is_some_and(|frozen| !frozen.asked && frozen.holders.is_empty()) {
            for event in self.resume() {
                self.event(event);
            }
        }
    }

    /// Continues all processes, in order to end them; waiting requests are refused.
    pub(super) fn thaw_to_end(&mut self) {
        for event in self.resume() {
            if let Event::Open(stream, _) = event {
                self.connection.reset(stream, &Failure::new("unavailable", "The sandbox is shutting down"));
            }
        }
    }

    fn resume(&mut self) -> Vec<Event<'static>> {
        let Some(frozen) = self.frozen.take() else { return Vec::new() };
        let living: HashSet<i32> = self.others().into_iter().collect();
        // Children first: a shell that sees its child stopped would treat it as suspended by the user.
        for pid in frozen.stopped.iter().rev().filter(|pid| living.contains(pid)) {
            // SAFETY: no pointers.
            unsafe { libc::kill(*pid, libc::SIGCONT) };
        }
        frozen.events
    }

    /// All processes of the sandbox that are not stopped, parents first.
    fn running(&self) -> Vec<i32> {
        let stopped: HashSet<i32> = process_table::read()
            .iter()
            .filter(|process| process.stopped)
            .map(|process| process.pid)
            .collect();
        self.others().into_iter().filter(|pid| !stopped.contains(pid)).collect()
    }

    /// Holds an event back if it has to wait; otherwise returns it.
    pub(super) fn hold<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        let Some(frozen) = &mut self.frozen else { return Some(event) };
        match &event {
            Event::Open(stream, request) if !goes_on(request) => {
                frozen.streams.insert(*stream);
            }
            // A reset request is dropped.
            Event::Reset(stream) if frozen.streams.remove(stream) => {
                let gone = *stream;
                frozen.events.retain(|event| stream_of(event) != Some(gone));
                return None;
            }
            other if stream_of(other).is_some_and(|stream| frozen.streams.contains(&stream)) => {}
            _ => return Some(event),
        }
        frozen.events.push(event.into_owned());
        None
    }

    /// The connection is gone, and with it all waiting requests.
    pub(super) fn forget_held(&mut self) {
        if let Some(frozen) = &mut self.frozen {
            frozen.streams.clear();
            frozen.events.clear();
        }
    }
}

fn stream_of(event: &Event<'_>) -> Option<u32> {
    match event {
        Event::Open(stream, _)
        | Event::Message(stream, _)
        | Event::Data(stream, _, _)
        | Event::Credit(stream, _)
        | Event::Ended(stream)
        | Event::Reset(stream) => Some(*stream),
        Event::Hello(_) | Event::Hangup(_) => None,
    }
}
