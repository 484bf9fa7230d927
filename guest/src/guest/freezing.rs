//! Standing still: everything that runs is stopped by SIGSTOP, and what is asked for meanwhile waits until it
//! goes on.
//!
//! This is for grounds that cannot freeze a sandbox from outside. The guest itself goes on, so that it can be
//! asked to thaw.

use std::collections::HashSet;

use super::*;

/// How often one look finds who was started during the look before.
const LOOKS: usize = 20;
/// A command that was being started while we looked appears a moment later.
const LOOK_AGAIN: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_secs(1)];

/// What a sandbox that stands still has to go on with.
#[derive(Default)]
pub(super) struct Frozen {
    /// Whom we stopped, parents first. Who was stopped before stays so.
    stopped: Vec<i32>,
    /// The streams that wait, and what came on them.
    streams: HashSet<u32>,
    events: Vec<Event>,
}

/// What is answered also while everything stands still.
fn goes_on(request: &Value) -> bool {
    matches!(
        request.text("op"),
        Some("freeze" | "thaw" | "stats" | "configure" | "shutdown" | "commands" | "listen")
    )
}

impl Guest {
    /// Stops everything below us. Frozen is done.
    pub(super) fn freeze(&mut self) {
        if self.frozen.is_none() && self.shutdown_at.is_none() {
            self.frozen = Some(Frozen::default());
            self.stop_all(0);
        }
    }

    /// Stops whoever runs, until a look finds nobody new.
    pub(super) fn stop_all(&mut self, attempt: usize) {
        let Some(mut frozen) = self.frozen.take() else { return };
        for _ in 0..LOOKS {
            let news: Vec<i32> =
                self.running().into_iter().filter(|pid| !frozen.stopped.contains(pid)).collect();
            for pid in &news {
                // SAFETY: no pointers.
                unsafe { libc::kill(*pid, libc::SIGSTOP) };
            }
            if news.is_empty() {
                break;
            }
            frozen.stopped.extend(news);
        }
        self.frozen = Some(frozen);
        if let Some(delay) = LOOK_AGAIN.get(attempt) {
            self.timers.after(*delay, Timer::Freeze(attempt + 1));
        }
    }

    /// Lets everything go on, and answers what was asked for meanwhile. Thawed is done.
    pub(super) fn thaw(&mut self) {
        for event in self.resume() {
            self.event(event);
        }
    }

    /// Lets everything go on, in order to end it; what waits is refused.
    pub(super) fn thaw_to_end(&mut self) {
        for event in self.resume() {
            if let Event::Open(stream, _) = event {
                self.connection.reset(stream, &Failure::new("unavailable", "The sandbox is shutting down"));
            }
        }
    }

    fn resume(&mut self) -> Vec<Event> {
        let Some(frozen) = self.frozen.take() else { return Vec::new() };
        let living: HashSet<i32> = self.others().into_iter().collect();
        // Children first: a shell that found its child stopped would take that for the user's wish.
        for pid in frozen.stopped.iter().rev().filter(|pid| living.contains(pid)) {
            // SAFETY: no pointers.
            unsafe { libc::kill(*pid, libc::SIGCONT) };
        }
        frozen.events
    }

    /// Everybody of the sandbox who is not stopped, parents first.
    fn running(&self) -> Vec<i32> {
        let stopped: HashSet<i32> = process_table::read()
            .iter()
            .filter(|process| process.stopped)
            .map(|process| process.pid)
            .collect();
        self.others().into_iter().filter(|pid| !stopped.contains(pid)).collect()
    }

    /// Keeps what has to wait; what has not comes back.
    pub(super) fn hold(&mut self, event: Event) -> Option<Event> {
        let Some(frozen) = &mut self.frozen else { return Some(event) };
        match &event {
            Event::Open(stream, request) if !goes_on(request) => {
                frozen.streams.insert(*stream);
            }
            // Whoever gives up has asked for nothing.
            Event::Reset(stream) if frozen.streams.remove(stream) => {
                let gone = *stream;
                frozen.events.retain(|event| stream_of(event) != Some(gone));
                return None;
            }
            other if stream_of(other).is_some_and(|stream| frozen.streams.contains(&stream)) => {}
            _ => return Some(event),
        }
        frozen.events.push(event);
        None
    }

    /// Nobody is there any more who waits.
    pub(super) fn forget_held(&mut self) {
        if let Some(frozen) = &mut self.frozen {
            frozen.streams.clear();
            frozen.events.clear();
        }
    }
}

fn stream_of(event: &Event) -> Option<u32> {
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
