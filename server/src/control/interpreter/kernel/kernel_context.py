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
# How long an event waits for what was printed before it, and output for the event that it came after.
DRAIN_S = 10
# Beyond every mark: the stream has ended.
END = 1 << 32

HERE = os.path.dirname(os.path.abspath(__file__))
# The run, and how many marks it made before this one. Marks say how far the output is.
MARK = re.compile(rb"\0([0-9a-f]{32})([0-9a-f]{8})\0")
PARTIAL_MARK = re.compile(rb"(?:\0[0-9a-f]{0,40})?\Z")

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
        self.process = None
        self.asking = None
        self.count = 0

    def begin(self):
        """Starts its process at the first use, so that a context that nobody uses costs nothing."""
        with self.life:
            if not self.process and not self.removed:
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
            with open(os.path.join(HERE, "kernel_bash.sh"), encoding="utf-8") as script:
                source = script.read().replace("{in}", str(ask)).replace("{out}", str(answer))
            return ["bash", "-c", source, "bash", str(ask), str(answer)]
        if self.language in ("javascript", "typescript"):
            # Node transforms "await" for its own prompt in a module that only this option shows.
            kernel = os.path.join(HERE, "kernel_node.js")
            return ["node", "--expose-internals", "--no-warnings", kernel, str(ask), str(answer), self.language]
        return [sys.executable, os.path.join(HERE, "kernel_python.py"), str(ask), str(answer)]

    def request(self, code, env, mark):
        if self.language != "bash":
            return json.dumps({"code": code, "env": env, "mark": mark}).encode() + b"\n"
        before = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
        kept = {**os.environ, **self.environment()}
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
                if run and run.process is process:
                    run.reached(name, END)
                return
            held += data
            while held:
                mark = MARK.search(held)
                # What may be the beginning of a mark waits for the rest of it.
                end = mark.start() if mark else len(held) - len(PARTIAL_MARK.search(held)[0])
                text = decoder.decode(held[:end], final=bool(mark))
                held = held[mark.end() if mark else end :]
                if text and run:
                    run.report({"type": name, "text": text, "timestamp": stamp()})
                if not mark:
                    break
                # One of an earlier run, which nobody waited for, is nothing to this one.
                if run and mark[1].decode() == run.mark:
                    place = int(mark[2], 16)
                    run.reached(name, place)
                    # What is printed after an event is sent after it.
                    run.await_sent(place)

    def read_answers(self, process, answers):
        with os.fdopen(answers, "rb") as lines:
            for line in lines:
                run = self.run
                if not run:
                    continue
                event = json.loads(line)
                # What was printed before this is sent before it.
                place = event.pop("after", 0)
                run.catch_up(place)
                if event["type"] == "end":
                    if event.get("status"):
                        status = str(event["status"])
                        error = {"type": "error", "name": "ExitStatus", "value": status, "traceback": f"exit status {status}"}
                        run.report({**error, "interrupted": run.interrupted})
                    run.ended.set()
                else:
                    run.report(event)
                run.has_told(place)
        process.wait()
        run = self.run
        if run and run.process is process:
            run.died = True
            run.ended.set()

    def interrupt(self, run):
        """Ends a run that no client waits for: interrupts it, then kills its context, which restarts."""
        run.interrupted = True
        self.signal(signal.SIGINT)
        if not run.ended.wait(INTERRUPT_S):
            self.signal(signal.SIGKILL)
            run.ended.wait()

    def stop_run(self):
        """Ends the run that is under way, if there is one. Its waiting client gets the error."""
        run = self.run
        if not run or run.ended.is_set():
            return False
        self.interrupt(run)
        return True

    def signal(self, number):
        if not self.process:
            return
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        if self.process:
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
        """Restarts its process if that has died."""
        with self.life:
            if self.process and self.process.poll() is not None and not self.removed:
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
        self.interrupted = False
        self.places = {"stdout": 0, "stderr": 0}
        self.silent = set()
        self.sent = 0
        self.moved = threading.Condition()

    def report(self, event):
        while not self.abandoned:
            try:
                return self.events.put(event, timeout=0.5)
            except queue.Full:
                continue

    def reached(self, name, place):
        with self.moved:
            self.places[name] = max(self.places[name], place)
            self.silent.discard(name)
            self.moved.notify_all()

    def catch_up(self, place):
        """Waits until all output before that mark was sent. Code that closed or redirected an output makes no marks
        there: that output is waited for once."""
        with self.moved:
            behind = lambda: {name for name, at in self.places.items() if at < place} - self.silent
            if not self.moved.wait_for(lambda: self.abandoned or not behind(), DRAIN_S):
                self.silent |= behind()

    def has_told(self, place):
        with self.moved:
            self.sent = place
            self.moved.notify_all()

    def await_sent(self, place):
        with self.moved:
            self.moved.wait_for(lambda: self.abandoned or self.died or self.sent >= place, DRAIN_S)

    def settle(self):
        """Waits for the end, and for what was printed before it; then says so."""
        self.ended.wait()
        if self.died:
            self.catch_up(END)
        self.report(None)


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data) :]


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{int(time.time() * 1e6) % 1_000_000:06d}Z"
