"""The inside of a Python context of the code interpreter.

    kernel_python.py IN OUT     asked through the descriptor IN, answering through OUT
"""

import ast
import builtins
import importlib.machinery
import importlib.util
import inspect
import json
import linecache
import os
import signal
import subprocess
import sys
import traceback
import types

from kernel_forms import bundled, representations

BACKEND = "code_interpreter_backend"
CELL = "<cell {}>"


class Python:
    def __init__(self, ask, answer):
        for descriptor in (ask, answer):
            os.set_inheritable(descriptor, False)
        self.asked = os.fdopen(ask, "rb")
        self.answer = os.fdopen(answer, "wb")
        self.count = 0
        self.mark = ""
        self.marks = 0
        self.loop = None
        main = types.ModuleType("__main__")
        # The usual ones close standard input, which a context has for more than one run.
        builtins.exit = builtins.quit = leave
        main.__dict__.update(display=self.display, __builtins__=builtins)
        sys.modules["__main__"] = main
        self.names = main.__dict__
        sys.meta_path.insert(0, Backend(self))
        sys.path.insert(0, "")
        sys.argv = [""]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")

    def serve(self):
        for line in self.asked:
            request = json.loads(line)
            self.mark, self.marks = request["mark"], 0
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
            self.report({"type": "end"})

    def report(self, event):
        """What was printed before an event is marked, so that it is sent before it: these are three pipes."""
        self.marks += 1
        sign = f"\0{self.mark}{self.marks:08x}\0".encode()
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
            try:
                os.write(number, sign)
            except OSError:
                pass
        self.answer.write(json.dumps({**event, "after": self.marks}).encode() + b"\n")
        self.answer.flush()

    def perform(self, code):
        self.count += 1
        name = CELL.format(self.count)
        code = without_indent(code)
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
                self.report({"type": "result", "is_main_result": True, **representations(value)})
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

    def display(self, *values, raw=False, **_):
        for value in values:
            forms = bundled(value) if raw and isinstance(value, dict) else representations(value)
            self.report({"type": "result", "is_main_result": False, **forms})

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
        interrupted = isinstance(error, KeyboardInterrupt)
        self.report({"type": "error", "name": type(error).__name__, "value": value, "traceback": text, "interrupted": interrupted})


class Backend:
    """What matplotlib draws with: in memory, and shown as results. It is made when matplotlib imports it, which is told of it by a variable
    that programs started from here must not have. What PIL and IPython show are results, too."""

    def __init__(self, python):
        self.python = python
        self.waiting = {"PIL.Image": self.show_images, "IPython.core.display_functions": self.show_displays}

    def with_change(self, name, change):
        """The module, changed after it was loaded."""
        spec = importlib.util.find_spec(name)
        if not spec or not spec.loader:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec

    def show_images(self, module):
        """Images that are shown, or saved by a name, are results. There is no screen to show them on."""
        display, save = self.python.display, module.Image.save

        def save_and_show(image, file, *given, **options):
            if isinstance(file, (str, os.PathLike)):
                display(image)
            return save(image, file, *given, **options)

        module.Image.save = save_and_show
        module.Image.show = lambda image, *_, **__: display(image)

    def show_displays(self, module):
        """Without a shell of its own IPython prints the names of objects that it is to display."""
        display = self.python.display

        def display_and_hold(*values, display_id=None, **options):
            display(*values, **options)
            if display_id:
                return module.DisplayHandle(None if display_id is True else display_id)

        module.display = display_and_hold
        module.publish_display_data = lambda data, *_, **__: display(data, raw=True)
        module.clear_output = lambda *_, **__: None

    def find_spec(self, name, _path=None, _target=None):
        if name == "matplotlib":
            os.environ["MPLBACKEND"] = "module://" + BACKEND
        elif name == "matplotlib.pyplot":
            os.environ.pop("MPLBACKEND", None)
        elif name in self.waiting:
            return self.with_change(name, self.waiting.pop(name))
        return importlib.machinery.ModuleSpec(name, self) if name == BACKEND else None

    def create_module(self, _spec):
        return None

    def exec_module(self, module):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        module.FigureCanvas = FigureCanvasAgg
        module.show = lambda *_, **__: self.python.figures()


def without_indent(code):
    """Code that is indented as a whole, as it is when it stands in a caller's own block."""
    lines = code.splitlines(True)
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    if not indent:
        return code
    return "".join(line[len(indent) :] if line.startswith(indent) else line for line in lines)


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


def main():
    # The parent may ignore SIGINT, which is inherited; runs need it. Between runs it ends nothing.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Where this file lies is nothing to the code that runs here.
    del sys.path[0]
    python = Python(int(sys.argv[1]), int(sys.argv[2]))
    while True:
        try:
            return python.serve()
        except KeyboardInterrupt:
            continue


if __name__ == "__main__":
    main()
