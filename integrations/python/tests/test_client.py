from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from uuid import uuid4

import pytest

from cay import AsyncSandbox, CayError, ExecEvent, Sandbox


def test_commands(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert result.end.kind == "exited"
    assert sandbox.exec(["printf", "%s|", "a b", "$HOME"]).stdout == "a b|$HOME|"
    assert sandbox.exec("cat", input="über").stdout == "über"
    assert sandbox.exec("pwd; echo $WHO", workdir="/tmp", env={"WHO": "me"}).stdout == "/tmp\nme\n"
    assert sandbox.exec("sleep 30", timeout_ms=200).end.kind == "timed_out"
    assert sandbox.exec("kill -TERM $$").end.signal == "SIGTERM"


def test_a_stream_has_its_events_in_order(sandbox: Sandbox) -> None:
    events = list(sandbox.stream("echo a; sleep 0.1; echo b >&2; exit 5"))
    assert events[0].type == "started"
    assert [(e.type, e.data) for e in events[1:-1]] == [("stdout", "a\n"), ("stderr", "b\n")]
    assert (events[-1].type, events[-1].exit_code) == ("end", 5)


def test_a_stream_is_live(sandbox: Sandbox) -> None:
    name = f"live-{uuid4().hex}"
    seen: list[ExecEvent] = []
    for event in sandbox.stream("echo first; sleep 60; echo last", id=name):
        seen.append(event)
        if event.type == "stdout":
            sandbox.signal(name, "SIGKILL")
    assert [event.data for event in seen if event.type == "stdout"] == ["first\n"]
    assert seen[-1].end is not None and seen[-1].end.signal == "SIGKILL"


def test_lines_are_split_at_newlines_alone(sandbox: Sandbox) -> None:
    odd = "a\u2028b\u0085c\x0bd\x1ce"
    sandbox.files.write("odd.txt", odd)
    assert "".join(e.data for e in sandbox.stream("cat odd.txt")) == odd


def test_commands_in_the_background(sandbox: Sandbox) -> None:
    command = sandbox.launch(["cat"], stdin=True)
    sandbox.write_stdin(command, b"\xff\x00one ")
    sandbox.write_stdin(command, b"two", close=True)
    assert b"".join(data for _, data in sandbox.output_bytes(command)) == b"\xff\x00one two"
    assert [e.exit_code for e in sandbox.output(command) if e.type == "end"] == [0]


def test_an_idempotent_command_runs_once(sandbox: Sandbox) -> None:
    key = uuid4().hex
    for _ in range(2):
        sandbox.exec("echo once >> once.txt", idempotency_key=key)
    assert sandbox.files.read_text("once.txt") == "once\n"


def test_files(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.write("deep/a.txt", "hello").size == 5
    files.write("deep/a.txt", b" there", append=True)
    assert files.read_text("deep/a.txt") == "hello there"
    assert files.read("deep/a.txt", offset=1, length=3) == b"ell"
    files.move("deep/a.txt", "deep/b.txt")
    files.mkdir("deep/er", mode=0o700)
    files.symlink("deep/link", "b.txt")
    assert {(one.name, one.type) for one in files.list("deep")} == {
        ("b.txt", "file"),
        ("er", "directory"),
        ("link", "symlink"),
    }
    files.chmod("deep/b.txt", 0o600)
    assert files.stat("deep/b.txt").mode == 0o600
    assert files.stat("deep/link", follow=True).type == "file"
    assert files.exists("deep/b.txt") and not files.exists("deep/a.txt")
    files.remove("deep", recursive=True)
    assert not files.exists("deep")


def test_trees(sandbox: Sandbox) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("one/two.txt")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"abc"))
    sandbox.files.upload("tree", archive.getvalue())
    assert sandbox.files.read("tree/one/two.txt") == b"abc"
    with tarfile.open(fileobj=io.BytesIO(sandbox.files.download("tree"))) as tar:
        assert any(name.endswith("one/two.txt") for name in tar.getnames())


def test_time_travel() -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("notes.txt", "one\n")
        first = sandbox.turn()
        assert first.turn == 1
        sandbox.files.write("notes.txt", "two\n")
        assert [(c.path, c.change) for c in sandbox.diff(1)] == [
            ("/home/user/notes.txt", "modified")
        ]
        assert sandbox.diff_stat(1)["insertions"] == 1
        assert b"+two" in sandbox.patch(1)
        kept = sandbox.rollback(1).kept
        assert kept is not None and sandbox.files.read_text("notes.txt") == "one\n"
        named = sandbox.snapshot("works")
        assert {one.id for one in sandbox.snapshots()} >= {first.id, kept.id, named.id}
        sandbox.remove_snapshot(kept.id)
        children = sandbox.fork(2, memory=False)
        try:
            for number, child in enumerate(children):
                child.files.write("notes.txt", f"child {number}\n")
            assert sandbox.files.read_text("notes.txt") == "one\n"
            assert children[1].files.read_text("notes.txt") == "child 1\n"
        finally:
            for child in children:
                child.kill()


def test_tools(sandbox: Sandbox) -> None:
    key = uuid4().hex
    for repeated in (False, True):
        result = sandbox.tool("bash", {"command": "echo x >> calls"}, tool_call_id=key)
        assert (result.is_error, result.repeated, result.tier) == (False, repeated, 2)
    assert sandbox.files.read_text("calls") == "x\n"
    assert "x" in sandbox.tool("read", {"file_path": "/home/user/calls"}).text
    assert sandbox.tool("read", {"file_path": "/nowhere"}).is_error
    assert {"bash", "grep"} <= {tool["name"] for tool in sandbox.describe_tools()}


def test_network(sandbox: Sandbox) -> None:
    sandbox.network.set("none")
    sandbox.network.allow("example.org:443")
    assert "example.org:443" in str(sandbox.network.get())
    sandbox.network.set("none")
    assert "example.org" not in str(sandbox.network.get()["policy"])
    assert isinstance(sandbox.network.attempts(), list)


def test_lifecycle() -> None:
    name = f"py-{uuid4().hex[:12]}"
    with Sandbox.create(name=name, labels={"made-by": name}) as sandbox:
        assert [one.id for one in Sandbox.list(labels={"made-by": name})] == [sandbox.id]
        assert Sandbox.connect(name).id == sandbox.id
        assert sandbox.pause().state == "paused"
        assert sandbox.resume().state == "active"
        assert sandbox.stop().state == "stopped"
        assert sandbox.start().state == "active"
        assert sandbox.update(labels={"a": "b"}).labels == {"a": "b"}
        assert sandbox.expose(8000).token
        assert sandbox.stats()["memoryBytes"] >= 0
        assert "snapshots" in sandbox.capabilities()["abilities"]
        sandbox.kill()
        sandbox.kill()  # Gone already is done.
    with pytest.raises(CayError) as gone:
        Sandbox.connect(name)
    assert gone.value.code == "not_found"


def test_errors(sandbox: Sandbox) -> None:
    with pytest.raises(CayError) as missing:
        sandbox.files.read("/missing")
    assert (missing.value.code, missing.value.retryable) == ("not_found", False)
    with pytest.raises(CayError) as wrong:
        Sandbox.create(memory_bytes=1)
    assert wrong.value.code == "invalid_argument"
    with pytest.raises(CayError) as stranger:
        Sandbox.create(api_key="cay_wrong")
    assert stranger.value.code == "unauthenticated"
    with pytest.raises(CayError) as away:
        Sandbox.create(url="http://127.0.0.1:9", api_key="secret-of-mine")
    assert away.value.code == "unavailable" and away.value.hint
    assert "secret-of-mine" not in str(away.value)


async def test_asyncio_has_the_same_verbs() -> None:
    async with await AsyncSandbox.create() as sandbox:
        results = await asyncio.gather(*(sandbox.exec(f"echo {n}") for n in range(4)))
        assert [result.stdout for result in results] == ["0\n", "1\n", "2\n", "3\n"]
        await sandbox.files.write("a.txt", "a")
        assert [one.name async for one in sandbox.files.list() if one.name == "a.txt"] == ["a.txt"]
        events = [event async for event in sandbox.stream("echo hi")]
        assert [e.type for e in events] == ["started", "stdout", "end"]


def test_sync_and_async_agree() -> None:
    public = [name for name in dir(AsyncSandbox) if not name.startswith("_")]
    assert public == [name for name in dir(Sandbox) if not name.startswith("_")]
    script = Path(__file__).parent.parent / "make_sync.py"
    subprocess.run([sys.executable, str(script), "--check"], check=True)
