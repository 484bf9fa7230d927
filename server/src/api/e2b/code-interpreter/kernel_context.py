"""Contexts of the code interpreter, from the side of its server."""

import codecs
import json
import os
import queue
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid

# How long a run that was interrupted may take to end before its context is killed.
INTERRUPT_S = 3
DRAIN_S = 2

PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel_python.py")
MARK = re.compile(rb"\0([0-9a-f]{32})\0")
PARTIAL_MARK = re.compile(rb"(?:\0[0-9a-f]{0,32})?\Z")

BASH = r"""
trap : INT
while IFS= read -r -d '' before <&"$1" && IFS= read -r -d '' code <&"$1" && IFS= read -r -d '' after <&"$1" && IFS= read -r -d '' mark <&"$1"; do
  eval "$before"
  eval "$code" {in}<&- {out}>&- </dev/null
  status=$?
  eval "$after"
  printf '\0%s\0' "$mark"
  printf '\0%s\0' "$mark" >&2
  printf '{"type":"end","status":%d}\n' "$status" >&"$2"
done
"""

NODE = r"""
const fs = require('fs'), vm = require('vm'), util = require('util'), readline = require('readline');
const [input, output] = process.argv.slice(1).map(Number);
const tell = (event) => fs.writeSync(output, JSON.stringify(event) + '\n');
globalThis.require = require('module').createRequire(process.cwd() + '/');
let interrupt;
process.on('SIGINT', () => interrupt && interrupt(new Error('Interrupted')));
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);
function fail(error) {
  const known = error instanceof Error || (error && error.stack);
  tell({ type: 'error', name: known ? error.name : 'Error', value: known ? String(error.message) : util.inspect(error), traceback: known ? String(error.stack) : util.inspect(error) });
}
async function run(code) {
  const options = { filename: 'cell.js', breakOnSigint: true };
  let value;
  try {
    value = vm.runInThisContext(code, options);
  } catch (error) {
    if (!(error instanceof SyntaxError) || !/\bawait\b/.test(code)) throw error;
    value = vm.runInThisContext('(async () => {' + code + '\n})()', options);
  }
  return Promise.race([value, new Promise((_, reject) => (interrupt = reject))]);
}
let line = Promise.resolve();
readline.createInterface({ input: fs.createReadStream(null, { fd: input }) }).on('line', (text) => {
  line = line.then(async () => {
    const { code, env, mark } = JSON.parse(text);
    const before = { ...process.env };
    Object.assign(process.env, env);
    try {
      const value = await run(code);
      if (value !== undefined) tell({ type: 'result', is_main_result: true, text: typeof value === 'string' ? value : util.inspect(value) });
    } catch (error) {
      fail(error);
    }
    for (const name of Object.keys(env)) if (name in before) process.env[name] = before[name]; else delete process.env[name];
    fs.writeSync(1, '\0' + mark + '\0');
    fs.writeSync(2, '\0' + mark + '\0');
    tell({ type: 'end' });
  });
}).on('close', () => process.exit());
"""


class Context:
    """A process in which code of one language runs, one run after the other."""

    def __init__(self, language, cwd, environment):
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self.environment = environment
        self.turn = threading.Lock()
        self.life = threading.Lock()
        self.removed = False
        self.run = None
        self.spawn()

    def spawn(self):
        self.count = 0
        ask, self.asking = os.pipe()
        answers, answer = os.pipe()
        env = {**os.environ, **self.environment()}
        try:
            self.process = subprocess.Popen(
                self.command(ask, answer),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.cwd,
                env=env,
                pass_fds=(ask, answer),
                start_new_session=True,
            )
        finally:
            os.close(ask)
            os.close(answer)
        for name in ("stdout", "stderr"):
            threading.Thread(target=self.read_output, args=(self.process, name), daemon=True).start()
        threading.Thread(target=self.read_answers, args=(self.process, answers), daemon=True).start()

    def command(self, ask, answer):
        if self.language == "bash":
            script = BASH.replace("{in}", str(ask)).replace("{out}", str(answer))
            return ["bash", "-c", script, "bash", str(ask), str(answer)]
        if self.language == "javascript":
            return ["node", "--input-type=commonjs", "-e", NODE, "--", str(ask), str(answer)]
        return [sys.executable, PYTHON, str(ask), str(answer)]

    def request(self, code, env, mark):
        if self.language != "bash":
            return json.dumps({"code": code, "env": env, "mark": mark}).encode() + b"\n"
        before = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
        kept = self.environment()
        after = "".join(f"export {name}={shlex.quote(kept[name])}\n" if name in kept else f"unset {name}\n" for name in env)
        return b"".join(part.replace("\0", "").encode() + b"\0" for part in (before, code, after, mark))

    def read_output(self, process, name):
        """Tells what is printed, up to the mark that ends a run. What comes while nothing runs is nobody's."""
        stream = getattr(process, name)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held = b""
        while True:
            data = os.read(stream.fileno(), 65536)
            run = self.run
            if not data:
                stream.close()
                if run:
                    run.drained(name)
                return
            held += data
            while held:
                mark = MARK.search(held)
                # What may be the beginning of a mark waits for the rest of it.
                end = mark.start() if mark else len(held) - len(PARTIAL_MARK.search(held)[0])
                text = decoder.decode(held[:end], final=bool(mark))
                held = held[mark.end() if mark else end :]
                if text and run:
                    run.tell({"type": name, "text": text, "timestamp": stamp()})
                if not mark:
                    break
                # One of an earlier run, which nobody waited for, is nothing to this one.
                if run and mark[1].decode() == run.mark:
                    run.drained(name)

    def read_answers(self, process, answers):
        with os.fdopen(answers, "rb") as lines:
            for line in lines:
                run = self.run
                if not run:
                    continue
                event = json.loads(line)
                if event["type"] == "end":
                    if event.get("status"):
                        status = str(event["status"])
                        run.tell({"type": "error", "name": "ExitStatus", "value": status, "traceback": f"exit status {status}"})
                    run.ended.set()
                else:
                    run.tell(event)
        process.wait()
        run = self.run
        if run and run.process is process:
            run.died = True
            run.ended.set()

    def interrupt(self, run):
        """Ends a run that nobody waits for: politely first, then with its context, which begins anew."""
        self.signal(signal.SIGINT)
        if not run.ended.wait(INTERRUPT_S):
            self.signal(signal.SIGKILL)
            run.ended.wait()

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        if self.asking is not None:
            os.close(self.asking)
            self.asking = None

    def restart(self):
        with self.life:
            self.kill()
            self.spawn()

    def remove(self):
        with self.life:
            self.removed = True
            self.kill()

    def revive(self):
        """Begins anew if it has died."""
        with self.life:
            if self.process.poll() is not None and not self.removed:
                self.kill()
                self.spawn()

    def show(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}


class Run:
    """One run of code. Events wait in a bounded queue, so code that prints faster than is read waits too."""

    def __init__(self, process):
        self.process = process
        self.mark = secrets.token_hex(16)
        self.events = queue.Queue(256)
        self.ended = threading.Event()
        self.died = False
        self.abandoned = False
        self.streams = {"stdout": threading.Event(), "stderr": threading.Event()}

    def tell(self, event):
        while not self.abandoned:
            try:
                return self.events.put(event, timeout=0.5)
            except queue.Full:
                continue

    def drained(self, name):
        self.streams[name].set()

    def settle(self):
        """Waits for the end, and for what was printed before it; then says so."""
        self.ended.wait()
        for stream in self.streams.values():
            stream.wait(DRAIN_S)
        self.tell(None)


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data) :]


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{int(time.time() * 1e6) % 1_000_000:06d}Z"
