"""The code interpreter inside a sandbox: runs code that comes by HTTP and streams what comes of it.

    kernel.py PORT ENVIRONMENT     serves on loopback
    kernel.py --python IN OUT      one Python context, asked through the descriptor IN, answering through OUT

Every context is a process group of its own, so one that loops or dies takes nobody with it. What it prints comes through its
own standard output and error, also from the programs that it starts; results, errors and the end of each run come through
a third pipe. A run ends with a mark on the first two, so that nothing printed before the end is told after it.

Standard library only: what the sandbox has of pandas or matplotlib is used if the code uses it.
"""

import ast
import base64
import builtins
import codecs
import http.server
import importlib.machinery
import inspect
import json
import linecache
import os
import queue
import re
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
import uuid

HOME = os.environ.get("HOME", "/home/user")
MAX_BODY = 64 * 1024 * 1024
MAX_CONTEXTS = 64
# How long a run that was interrupted may take to end before its context is killed.
INTERRUPT_S = 3
DRAIN_S = 2

LANGUAGES = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "bash": "bash",
    "sh": "bash",
}

BACKEND = "code_interpreter_backend"
MARK = re.compile(rb"\0([0-9a-f]{32})\0")
PARTIAL_MARK = re.compile(rb"(?:\0[0-9a-f]{0,32})?\Z")

# Contexts: the side of the server.

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
        env = {**os.environ, **self.environment(), "MPLBACKEND": "module://" + BACKEND}
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
        return [sys.executable, os.path.abspath(__file__), "--python", str(ask), str(answer)]

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


class Contexts:
    def __init__(self, environment_file):
        self.environment_file = environment_file
        self.all = {}
        self.defaults = {}
        self.lock = threading.Lock()

    def environment(self):
        try:
            with open(self.environment_file, encoding="utf-8") as file:
                return {str(name): str(value) for name, value in json.load(file).items()}
        except (OSError, ValueError):
            return {}

    def create(self, language, cwd):
        name = LANGUAGES.get((language or "python").lower())
        if not name:
            raise Refused(400, f"Language {language!r} is not supported here: it can be python, javascript or bash")
        program = {"javascript": "node", "bash": "bash"}.get(name)
        if program and not shutil.which(program):
            raise Refused(400, f"Language {language!r} needs {program}, which this sandbox does not have")
        cwd = os.path.join(HOME, cwd) if cwd else HOME
        if not os.path.isdir(cwd):
            raise Refused(400, f"Directory {cwd!r} does not exist")
        if len(self.all) >= MAX_CONTEXTS:
            raise Refused(429, f"There are {MAX_CONTEXTS} contexts already")
        context = Context(name, cwd, self.environment)
        self.all[context.id] = context
        return context

    def find(self, context_id):
        context = self.all.get(context_id)
        if not context:
            raise Refused(404, f"Context {context_id} not found")
        return context

    def of_language(self, language):
        name = LANGUAGES.get((language or "python").lower())
        with self.lock:
            context = self.defaults.get(name)
            if not context or context.removed:
                context = self.defaults[name] = self.create(language, None)
            return context

    def remove(self, context_id):
        context = self.find(context_id)
        del self.all[context_id]
        context.remove()


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    contexts = None
    # A line that is told is told at once.
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer("GET")

    def do_POST(self):
        self.answer("POST")

    def do_DELETE(self):
        self.answer("DELETE")

    def answer(self, method):
        path = self.path.split("?")[0].rstrip("/")
        parts = path.split("/")[1:]
        try:
            body = self.body()
            if (method, path) == ("GET", "/health"):
                return self.send(200, "OK")
            if (method, path) == ("POST", "/execute"):
                return self.execute(body)
            if (method, path) == ("POST", "/contexts"):
                return self.send(200, self.contexts.create(body.get("language"), body.get("cwd")).show())
            if (method, path) == ("GET", "/contexts"):
                return self.send(200, [context.show() for context in list(self.contexts.all.values())])
            if parts[0] == "contexts" and len(parts) == 2 and method == "DELETE":
                self.contexts.remove(parts[1])
                return self.send(204, None)
            if parts[0] == "contexts" and len(parts) == 3 and (method, parts[2]) == ("POST", "restart"):
                self.contexts.find(parts[1]).restart()
                return self.send(200, {})
            raise Refused(404, f"There is no {method} {path}")
        except Refused as refused:
            self.send(refused.status, str(refused))

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            data = self.chunks()
        else:
            length = int(self.headers.get("Content-Length") or 0)
            if length > MAX_BODY:
                self.close_connection = True
                raise Refused(413, "The request is too large")
            data = self.rfile.read(length)
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            raise Refused(400, "The request is not JSON") from None
        if not isinstance(body, dict):
            raise Refused(400, "The request is not an object")
        return body

    def chunks(self):
        data = b""
        while True:
            size = int(self.rfile.readline(64).split(b";")[0] or b"0", 16)
            if len(data) + size > MAX_BODY:
                self.close_connection = True
                raise Refused(413, "The request is too large")
            data += self.rfile.read(size)
            self.rfile.readline(64)
            if size == 0:
                return data

    def send(self, status, content):
        data = b"" if content is None else (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def gone(self):
        """Whether the caller has hung up."""
        ready, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(ready) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def execute(self, body):
        code, env = body.get("code"), body.get("env_vars") or {}
        if not isinstance(code, str):
            raise Refused(400, "There is no code to run")
        if not isinstance(env, dict) or not all(name.isidentifier() and isinstance(value, str) for name, value in env.items()):
            raise Refused(400, "The environment is not names and strings")
        context = self.contexts.find(body["context_id"]) if body.get("context_id") else self.contexts.of_language(body.get("language"))
        while not context.turn.acquire(timeout=0.5):
            if self.gone():
                self.close_connection = True
                return
        try:
            if context.removed:
                raise Refused(404, f"Context {context.id} not found")
            self.perform(context, code, {**self.contexts.environment(), **env})
        finally:
            context.run = None
            context.turn.release()

    def perform(self, context, code, env):
        with context.life:
            run = Run(context.process)
            context.run = run
            asking = context.asking
        context.count += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.tell({"type": "number_of_executions", "execution_count": context.count})
        threading.Thread(target=run.settle, daemon=True).start()
        try:
            write_all(asking, context.request(code, env, run.mark))
        except (OSError, TypeError):
            # It has died before it could be asked.
            run.died = True
            run.ended.set()
        try:
            while True:
                try:
                    event = run.events.get(timeout=0.25)
                except queue.Empty:
                    if self.gone():
                        raise ConnectionError from None
                    continue
                if event is None:
                    break
                self.tell(event)
            if run.died:
                value = f"The context has ended with exit code {run.process.wait()}, and begins anew"
                self.tell({"type": "error", "name": "ContextDied", "value": value, "traceback": value})
                self.tell({"type": "unexpected_end_of_execution"})
            else:
                self.tell({"type": "end_of_execution"})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
            run.abandoned = True
            context.interrupt(run)
        finally:
            context.revive()

    def tell(self, event):
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def log_message(self, *_):
        pass


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data) :]


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{int(time.time() * 1e6) % 1_000_000:06d}Z"


# The inside of a Python context.

CELL = "<cell {}>"
MIME = {
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}


class Python:
    def __init__(self, ask, answer):
        for descriptor in (ask, answer):
            os.set_inheritable(descriptor, False)
        self.asked = os.fdopen(ask, "rb")
        self.answer = answer
        self.count = 0
        self.loop = None
        main = types.ModuleType("__main__")
        # The usual ones close standard input, which a context has for more than one run.
        builtins.exit = builtins.quit = leave
        main.__dict__.update(display=self.display, __builtins__=builtins)
        sys.modules["__main__"] = main
        self.names = main.__dict__
        sys.meta_path.append(Backend(self))
        sys.path.insert(0, "")
        sys.argv = [""]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")

    def serve(self):
        for line in self.asked:
            request = json.loads(line)
            before = {name: os.environ.get(name) for name in request["env"]}
            os.environ.update(request["env"])
            try:
                self.perform(request["code"])
            except BaseException as error:
                self.fail(error)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
                try:
                    stream.flush()
                except (OSError, ValueError):
                    pass
                try:
                    os.write(number, b"\0" + request["mark"].encode() + b"\0")
                except OSError:
                    pass
            self.tell({"type": "end"})

    def tell(self, event):
        write_all(self.answer, json.dumps(event).encode() + b"\n")

    def perform(self, code):
        self.count += 1
        name = CELL.format(self.count)
        try:
            tree = ast.parse(code, name)
        except SyntaxError as error:
            code = with_commands(code)
            self.names.setdefault("__system__", system)
            try:
                tree = ast.parse(code, name)
            except SyntaxError:
                raise error from None
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        self.evaluate(tree, name, "exec")
        if last:
            value = self.evaluate(last, name, "eval")
            if value is not None:
                self.names["_"] = value
                self.tell({"type": "result", "is_main_result": True, **representations(value)})
                pyplot = sys.modules.get("matplotlib.pyplot")
                if pyplot and isinstance(value, pyplot.Figure):
                    pyplot.close(value)
        self.figures()

    def evaluate(self, tree, name, mode):
        compiled = compile(tree, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        value = eval(compiled, self.names)
        if not (compiled.co_flags & inspect.CO_COROUTINE):
            return value
        import asyncio

        self.loop = self.loop or asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(value)

    def display(self, *values, **_):
        for value in values:
            self.tell({"type": "result", "is_main_result": False, **representations(value)})

    def figures(self):
        """Shows the figures that were drawn and not shown yet."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if not pyplot:
            return
        for number in pyplot.get_fignums():
            self.display(pyplot.figure(number))
        pyplot.close("all")

    def fail(self, error):
        frames = error.__traceback__
        # What is above the cell is not the caller's.
        while frames and not frames.tb_frame.f_code.co_filename.startswith("<cell"):
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        try:
            value = str(error)
        except Exception:
            value = "<it has no text>"
        self.tell({"type": "error", "name": type(error).__name__, "value": value, "traceback": text})


class Backend:
    """What matplotlib draws with: in memory, and shown as results. It is made when matplotlib imports it."""

    def __init__(self, python):
        self.python = python

    def find_spec(self, name, _path=None, _target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == BACKEND else None

    def create_module(self, _spec):
        return None

    def exec_module(self, module):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        module.FigureCanvas = FigureCanvasAgg
        module.show = lambda *_, **__: self.python.figures()


def representations(value):
    """Every form that a value has of itself. One that it cannot make is left out."""
    found = {}
    bundle = attempt(value, "_repr_mimebundle_")
    if isinstance(bundle, tuple):
        bundle = bundle[0]
    if isinstance(bundle, dict):
        found = {name: bundle[mime] for name, mime in MIME.items() if mime in bundle}
    for name in MIME:
        if name not in found:
            form = attempt(value, f"_repr_{name}_")
            if form is not None:
                found[name] = form[0] if isinstance(form, tuple) else form
    kind = type(value)
    if kind.__module__.startswith("matplotlib.figure") and "png" not in found:
        import io

        image = io.BytesIO()
        value.savefig(image, format="png", bbox_inches="tight")
        found["png"] = image.getvalue()
    if kind.__module__.startswith("pandas.") and kind.__name__ == "DataFrame":
        found["data"] = json.loads(value.to_json(orient="split"))
        found["data"] = {str(name): [row[at] for row in found["data"]["data"]] for at, name in enumerate(found["data"]["columns"])}
    result = {}
    for name, form in found.items():
        if isinstance(form, bytes):
            form = base64.b64encode(form).decode()
        try:
            json.dumps(form)
        except (TypeError, ValueError):
            continue
        result[name] = form
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{kind.__name__} that cannot be shown: {type(error).__name__}>"
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return {"text": text, **result}


def attempt(value, method):
    # A class has the methods of its instances, and cannot be asked like one of them.
    if isinstance(value, type):
        return None
    try:
        made = getattr(value, method, None)
        return made() if callable(made) else None
    except Exception:
        return None


def with_commands(code):
    """Lines that begin with "!" are for the shell, as notebooks have it; so is "%pip"."""
    lines = []
    for line in code.splitlines():
        text = line.lstrip()
        indent = line[: len(line) - len(text)]
        if text.startswith("!"):
            line = f"{indent}__system__({text[1:]!r})"
        elif text.startswith("%pip "):
            line = f"{indent}__system__({text[1:]!r})"
        elif text.startswith("%matplotlib"):
            line = f"{indent}pass"
        lines.append(line)
    return "\n".join(lines)


def leave(code=None):
    raise SystemExit(code)


def system(line):
    sys.stdout.flush()
    subprocess.run(["bash", "-c", line], check=False)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    if sys.argv[1] == "--python":
        # Whoever started the server may not want to be interrupted; runs are. Between them there is nothing to end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        python = Python(int(sys.argv[2]), int(sys.argv[3]))
        while True:
            try:
                return python.serve()
            except KeyboardInterrupt:
                continue
    # Not ignored, which contexts would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    Handler.contexts = Contexts(sys.argv[2])
    # The one that is asked first is there before anybody can ask.
    context = Handler.contexts.of_language("python")
    context.run = warm = Run(context.process)
    write_all(context.asking, context.request("", {}, warm.mark))
    warm.settle()
    context.run = None
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
