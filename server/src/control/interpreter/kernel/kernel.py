"""The code interpreter inside a sandbox: runs code that comes by HTTP and streams what comes of it.

    kernel.py PORT ENVIRONMENT     serves on loopback

Every context is a process group of its own, so one that loops or dies takes nobody with it. What it prints comes through its
own standard output and error, also from the programs that it starts; results, errors and the end of each run come through
a third pipe. A run ends with a mark on the first two, so that nothing printed before the end is sent after it.

Standard library only: what the sandbox has of pandas or matplotlib is used if the code uses it.
"""

import http.server
import json
import os
import queue
import select
import shutil
import signal
import socket
import sys
import threading

from kernel_context import Context, Run, write_all

HOME = os.environ.get("HOME", "/home/user")
MAX_BODY = 64 * 1024 * 1024
MAX_CONTEXTS = 64

LANGUAGES = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "bash": "bash",
    "sh": "bash",
    "typescript": "typescript",
    "ts": "typescript",
}
PROGRAMS = {"javascript": "node", "typescript": "node", "bash": "bash"}


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
            raise Refused(400, f"Language {language!r} is not supported here: it can be python, javascript, typescript or bash")
        program = PROGRAMS.get(name)
        if program and not shutil.which(program):
            raise Refused(400, f"Language {language!r} needs {program}, which this sandbox does not have")
        cwd = os.path.join(HOME, cwd) if cwd else HOME
        if not os.path.isdir(cwd):
            raise Refused(400, f"Directory {cwd!r} does not exist")
        if not os.access(cwd, os.R_OK | os.X_OK):
            raise Refused(403, f"Directory {cwd!r} is not open to the user that code runs as")
        if len(self.all) >= MAX_CONTEXTS:
            raise Refused(429, f"There are {MAX_CONTEXTS} contexts already")
        context = Context(name, cwd, self.environment)
        self.all[context.id] = context
        return context

    def prepare(self, languages):
        """The contexts that are there before anybody asks for one."""
        for language in languages:
            if language not in PROGRAMS or shutil.which(PROGRAMS[language]):
                self.of_language(language)

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
    # Each line is sent at once.
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
                context = self.contexts.create(text(body, "language"), text(body, "cwd"))
                context.begin()
                return self.send(200, context.show())
            if (method, path) == ("GET", "/contexts"):
                return self.send(200, [context.show() for context in list(self.contexts.all.values())])
            if parts[0] == "contexts" and len(parts) == 2 and method == "DELETE":
                self.contexts.remove(parts[1])
                return self.send(204, None)
            if parts[0] == "contexts" and len(parts) == 3 and (method, parts[2]) == ("POST", "restart"):
                self.contexts.find(parts[1]).restart()
                return self.send(200, {})
            if parts[0] == "contexts" and len(parts) == 3 and (method, parts[2]) == ("POST", "interrupt"):
                return self.send(200, {"interrupted": self.contexts.find(parts[1]).stop_run()})
            raise Refused(404, f"There is no {method} {path}")
        except Refused as refused:
            self.send(refused.status, str(refused))
        except OSError as error:
            # A context could not be started. The caller went away, or gets the error.
            self.close_connection = True
            try:
                self.send(500, f"The context cannot be started: {error.strerror}")
            except OSError:
                pass

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
        named = text(body, "context_id")
        context = self.contexts.find(named) if named else self.contexts.of_language(text(body, "language"))
        while not context.turn.acquire(timeout=0.5):
            if self.gone():
                self.close_connection = True
                return
        try:
            if context.removed:
                raise Refused(404, f"Context {context.id} not found")
            context.begin()
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
        self.report({"type": "number_of_executions", "execution_count": context.count, "context": context.id})
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
                self.report(event)
            if run.died:
                value = f"The context has ended with exit code {run.process.wait()}, and begins anew"
                self.report({"type": "error", "name": "ContextDied", "value": value, "traceback": value})
                self.report({"type": "unexpected_end_of_execution"})
            else:
                self.report({"type": "end_of_execution"})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
            run.abandoned = True
            context.interrupt(run)
        finally:
            context.revive()

    def report(self, event):
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def log_message(self, *_):
        pass


def text(body, name):
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(400, f"{name} is not text")
    return value


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    # Not ignored, which contexts would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    Handler.contexts = Contexts(sys.argv[2])
    # The one that is asked first is there before anybody can ask.
    Handler.contexts.prepare(["python", "javascript"])
    context = Handler.contexts.of_language("python")
    context.begin()
    context.run = warm = Run(context.process)
    write_all(context.asking, context.request("", {}, warm.mark))
    warm.settle()
    context.run = None
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
