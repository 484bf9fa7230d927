//! How the guest answers each request.

use super::*;

/// What an answer has room for beside everything else.
const MAX_ENVIRON: usize = 32_768;

impl Guest {
    pub(super) fn open(&mut self, stream: u32, request: Value) -> Result<(), Failure> {
        let op = request.text("op").unwrap_or_default().to_owned();
        match op.as_str() {
            "exec" => self.exec(stream, &request)?,
            "attach" => {
                let id = request::id(&request)?;
                let key = self
                    .commands
                    .find(id)
                    .ok_or_else(|| Failure::new("not_found", format!("There is no command \"{id}\"")))?;
                self.attach(stream, key, request.int("offset").unwrap_or(0).max(0) as u64, true);
            }
            "commands" => self.answer(stream, &self.commands.list()),
            "signal" => {
                self.commands.signal(&request, &mut self.context.timers)?;
                self.answer(stream, &Value::map([]));
            }
            "resize" => {
                self.commands.resize(&request)?;
                self.answer(stream, &Value::map([]));
            }
            "forget" => {
                self.commands.forget(&request)?;
                self.answer(stream, &Value::map([]));
            }
            "connect" => {
                let forward = Forward::open(stream, &request, &self.context.poller)?;
                self.handlers.insert(stream, Handler::Forward(Box::new(forward)));
                self.make_ready(stream);
            }
            "connect-datagrams" => {
                let port = DatagramPort::open(stream, &request, &self.context.poller)?;
                self.handlers.insert(stream, Handler::DatagramPort(Box::new(port)));
                self.connection.message(stream, &Value::map([]));
            }
            "ports" => {
                let mut watcher = Watcher::default();
                if let Some(message) = watcher.changes(&self.listening()) {
                    self.connection.message(stream, &message);
                }
                if request.flag("watch") {
                    self.handlers.insert(stream, Handler::Ports(watcher));
                    if !self.ports_armed {
                        self.ports_armed = true;
                        self.context.timers.after(PORTS_INTERVAL, Timer::Ports);
                    }
                } else {
                    self.connection.end(stream);
                }
            }
            "stats" => {
                let stats = self.stats();
                self.answer(stream, &stats);
            }
            "environment" => {
                self.answer(stream, &Value::map([("environ", Value::Bytes(environment()))]));
            }
            "configure" => {
                self.configure(&request);
                self.answer(stream, &Value::map([]));
            }
            "listen" => {
                let port = self.callers.listen(&request, &self.context.poller)?;
                self.answer(stream, &Value::map([("port", i64::from(port).into())]));
            }
            "freeze" => {
                self.freeze();
                self.answer(stream, &Value::map([]));
            }
            "thaw" => {
                self.answer(stream, &Value::map([]));
                self.thaw();
            }
            "still" => {
                self.hold_still(stream);
                self.handlers.insert(stream, Handler::Still);
                self.connection.message(stream, &Value::map([]));
            }
            "shutdown" => {
                self.answer(stream, &Value::map([]));
                self.again |= request.flag("again");
                self.shut_down(request.int("graceMs").unwrap_or(0).clamp(0, 3_600_000) as u64);
            }
            op if files::handles(op) || tools::handles(op) => {
                let op = op.to_owned();
                let mailbox = self.tasks.start(stream, &op, request)?;
                self.handlers.insert(stream, Handler::Task(mailbox));
            }
            op => {
                return Err(Failure::new(
                    "unsupported",
                    format!("The guest has no operation \"{}\"", op.escape_default()),
                ));
            }
        }
        Ok(())
    }

    /// Sets the hostname, and the limits that the guest enforces: an absent one is left as it is, `null`
    /// lifts a limit.
    pub(super) fn configure(&mut self, settings: &Value) {
        let limit = |key| {
            settings.get(key).map(|_| settings.int(key).filter(|limit| *limit > 0).map(|limit| limit as u64))
        };
        if settings.get("egress").is_some() {
            self.switch_egress(settings.flag("egress"));
        }
        if let Some(memory) = limit("memoryLimit") {
            self.context.memory.limit = memory;
            self.guard_memory();
        }
        if let Some(pids) = limit("pidsLimit") {
            self.commands.limit_processes(pids);
        }
        if let Some(files) = limit("openFilesLimit") {
            self.commands.limit_open_files(files);
        }
        if let Some(name) = settings.text("hostname").filter(|name| name.len() <= 64) {
            // SAFETY: the name lives for the call. Where it is not allowed the runtime has set one.
            unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) };
        }
    }

    pub(super) fn answer(&mut self, stream: u32, message: &Value) {
        self.connection.message(stream, message);
        self.connection.end(stream);
    }

    pub(super) fn exec(&mut self, stream: u32, request: &Value) -> Result<(), Failure> {
        if self.shutdown_at.is_some() {
            return Err(Failure::new("failed_precondition", "The sandbox is shutting down"));
        }
        if let Some(key) = self.commands.find(request::id(request)?) {
            self.attach(stream, key, 0, true);
            return Ok(());
        }
        let request = request::exec(request)?;
        let key = self.commands.start(request, &mut self.context)?;
        self.attach(stream, key, 0, false);
        self.guard_memory();
        Ok(())
    }

    pub(super) fn attach(&mut self, stream: u32, key: u64, offset: u64, existing: bool) {
        self.commands.attach(key, stream);
        self.handlers.insert(stream, Handler::Reader(Reader::new(key, offset, existing)));
        self.make_ready(stream);
    }

    pub(super) fn stats(&mut self) -> Value {
        let ours = std::process::id() as i32;
        let supervisors: std::collections::HashSet<i32> = self.commands.supervisor_pids().copied().collect();
        let processes = process_table::read()
            .iter()
            .filter(|process| process.pid != ours && !supervisors.contains(&process.pid))
            .count();
        let (used, total) = self.context.memory.usage();
        Value::map([
            ("processes", (processes as i64).into()),
            ("memoryBytes", (used as i64).into()),
            ("memoryTotalBytes", (total as i64).into()),
            ("oomKills", (self.context.memory.all_kills() as i64).into()),
            ("cpuUsageMs", (process_table::cpu_usage_ms() as i64).into()),
            ("uptimeMs", (self.born.elapsed().as_millis() as i64).into()),
        ])
    }
}

/// The variables that the guest was started with, each ended by a NUL: those of its image where an engine of
/// containers started it. No other process can read them. Those that do not fit are left out.
fn environment() -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let mut environ = Vec::new();
    for (name, value) in std::env::vars_os() {
        if environ.len() + name.len() + value.len() + 2 > MAX_ENVIRON {
            continue;
        }
        environ.extend_from_slice(name.as_bytes());
        environ.push(b'=');
        environ.extend_from_slice(value.as_bytes());
        environ.push(0);
    }
    environ
}
