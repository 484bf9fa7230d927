"""What E2B's Python client does against our server; run by python.test.ts, which gives the address and the key."""

import asyncio
import gzip
import time
import unittest
import urllib.request

from e2b import (
    ALL_TRAFFIC,
    AsyncSandbox,
    CommandExitException,
    FilesystemEventType,
    FileType,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.exceptions import AuthenticationException, InvalidArgumentException


def eventually(condition, seconds=10):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("it did not become true")
        time.sleep(0.02)


class Blocking(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(metadata={"a key": "a & b"}, envs={"FROM_CREATE": "one"})

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def test_runs_commands(self):
        result = self.sandbox.commands.run("echo $FROM_CREATE $FROM_RUN; echo err >&2", envs={"FROM_RUN": "two"})
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (0, "one two\n", "err\n"))
        self.assertEqual(self.sandbox.commands.run("whoami; pwd", user="root", cwd="/tmp").stdout, "root\n/tmp\n")

    def test_tells_exit_codes_timeouts_and_unknown_users(self):
        with self.assertRaises(CommandExitException) as failure:
            self.sandbox.commands.run("exit 3")
        self.assertEqual(failure.exception.exit_code, 3)
        with self.assertRaises(TimeoutException):
            self.sandbox.commands.run("sleep 100", timeout=0.3)
        with self.assertRaises(AuthenticationException):
            self.sandbox.commands.run("true", user="nobody-here")

    def test_background_commands_and_input(self):
        handle = self.sandbox.commands.run("cat", background=True, stdin=True)
        self.assertIn(handle.pid, [process.pid for process in self.sandbox.commands.list()])
        self.sandbox.commands.send_stdin(handle.pid, "hello\n")
        self.sandbox.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "hello\n")

    def test_connects_and_kills(self):
        handle = self.sandbox.commands.run("sleep 1000", background=True)
        handle.disconnect()
        again = self.sandbox.commands.connect(handle.pid)
        self.assertTrue(again.kill())
        with self.assertRaises(CommandExitException):
            again.wait()
        self.assertFalse(self.sandbox.commands.kill(handle.pid))

    def test_terminals(self):
        terminal = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=132))
        self.sandbox.pty.send_stdin(terminal.pid, b"echo wide-$(tput cols); exit\n")
        seen = []
        self.assertEqual(terminal.wait(on_pty=seen.append).exit_code, 0)
        self.assertIn(b"wide-132", b"".join(seen))

    def test_reads_and_writes_files(self):
        self.assertEqual(self.sandbox.files.write("text.txt", "häß").path, "/home/user/text.txt")
        self.assertEqual(self.sandbox.files.read("text.txt"), "häß")
        self.assertEqual(bytes(self.sandbox.files.read("text.txt", format="bytes")), "häß".encode())
        self.assertEqual(b"".join(self.sandbox.files.read("text.txt", format="stream")), "häß".encode())
        self.sandbox.files.write("packed.txt", "again " * 1000, gzip=True)
        self.assertEqual(self.sandbox.files.read("packed.txt", gzip=True), "again " * 1000)
        written = self.sandbox.files.write_files([{"path": "/app/a b", "data": "1"}, {"path": "c", "data": b"2"}])
        self.assertEqual([file.path for file in written], ["/app/a b", "/home/user/c"])

    def test_notes_metadata(self):
        self.sandbox.files.write("noted", "x", metadata={"author": "me"})
        self.assertEqual(self.sandbox.files.get_info("noted").metadata, {"author": "me"})

    def test_describes_makes_moves_and_removes(self):
        self.assertTrue(self.sandbox.files.make_dir("made/below"))
        self.assertFalse(self.sandbox.files.make_dir("made/below"))
        self.sandbox.files.write("made/file", "abc")
        listed = [(entry.name, entry.type, entry.owner) for entry in self.sandbox.files.list("made", depth=2)]
        self.assertEqual(listed, [("below", FileType.DIR, "user"), ("file", FileType.FILE, "user")])
        self.assertEqual(self.sandbox.files.rename("made/file", "moved/file").path, "/home/user/moved/file")
        self.sandbox.files.remove("moved")
        self.assertFalse(self.sandbox.files.exists("moved/file"))
        with self.assertRaises(NotFoundException):
            self.sandbox.files.read("moved/file")
        with self.assertRaises(InvalidArgumentException):
            self.sandbox.files.list("text.txt") if self.sandbox.files.write("text.txt", "") else None

    def test_watches_by_asking(self):
        self.sandbox.files.make_dir("watched/below")
        watch = self.sandbox.files.watch_dir("watched", recursive=True)
        self.sandbox.files.write("watched/below/new", "1")
        seen = []

        def written():
            seen.extend(watch.get_new_events())
            return any(event.type == FilesystemEventType.WRITE and event.name == "below/new" for event in seen)

        eventually(written)
        self.assertIn(FilesystemEventType.CREATE, [event.type for event in seen])
        watch.stop()
        with self.assertRaises(SandboxException):
            watch.get_new_events()

    def test_signed_addresses(self):
        self.sandbox.files.write("signed", "signed")
        with urllib.request.urlopen(self.sandbox.download_url("signed", use_signature_expiration=60)) as answer:
            self.assertEqual(answer.read(), b"signed")
        request = urllib.request.Request(
            self.sandbox.upload_url("up"),
            data=gzip.compress(b"raw"),
            headers={"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"},
        )
        urllib.request.urlopen(request).close()
        self.assertEqual(self.sandbox.files.read("up"), "raw")
        with self.assertRaises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(self.sandbox.download_url("signed", use_signature_expiration=-60))
        self.assertEqual(refusal.exception.code, 401)
        refusal.exception.close()

    def test_tells_about_itself(self):
        info = self.sandbox.get_info()
        self.assertEqual((info.sandbox_id, info.state, info.metadata), (self.sandbox.sandbox_id, SandboxState.RUNNING, {"a key": "a & b"}))
        self.assertTrue(self.sandbox.is_running())
        self.assertGreater(self.sandbox.get_metrics()[0].mem_total, 0)
        self.assertTrue(self.sandbox.get_host(3000).startswith(f"3000-{self.sandbox.sandbox_id}."))

    def test_lists_by_metadata(self):
        listed = Sandbox.list(query=SandboxQuery(metadata={"a key": "a & b"}), limit=1).next_items()
        self.assertEqual([one.sandbox_id for one in listed], [self.sandbox.sandbox_id])
        self.assertEqual(Sandbox.list(query=SandboxQuery(metadata={"a key": "other"})).next_items(), [])

    def test_git_helpers(self):
        self.sandbox.git.init("/home/user/repository")
        self.assertTrue(self.sandbox.git.status("/home/user/repository").is_clean)


class Lives(unittest.TestCase):
    def test_connects_and_kills(self):
        sandbox = Sandbox.create(timeout=60)
        sandbox.files.write("note", "same")
        self.assertEqual(Sandbox.connect(sandbox.sandbox_id).files.read("note"), "same")
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.kill())
        self.assertFalse(sandbox.is_running())
        with self.assertRaises(SandboxException):
            sandbox.commands.run("true")

    def test_pauses_with_files_alone_and_refuses_to_pretend_more(self):
        sandbox = Sandbox.create()
        sandbox.files.write("note", "kept")
        with self.assertRaisesRegex(SandboxException, "501"):
            sandbox.pause()
        sandbox.pause(keep_memory=False)
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
        sandbox.connect()
        self.assertEqual(sandbox.files.read("note"), "kept")
        sandbox.kill()

    def test_refuses_wrong_keys_and_unknown_templates(self):
        with self.assertRaises(AuthenticationException):
            Sandbox.create(api_key="e2b_" + "0" * 40)
        with self.assertRaisesRegex(SandboxException, "404"):
            Sandbox.create("no-such-template")
        with self.assertRaisesRegex(SandboxException, "501"):
            Sandbox.create(network={"allow_out": ["example.com"], "deny_out": [ALL_TRAFFIC]})


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_commands_files_and_watching(self):
        sandbox = await AsyncSandbox.create()
        try:
            outputs = await asyncio.gather(*[sandbox.commands.run(f"echo {index}") for index in range(5)])
            self.assertEqual([output.stdout for output in outputs], [f"{index}\n" for index in range(5)])
            seen = []
            watch = await sandbox.files.watch_dir("/home/user", on_event=lambda event: seen.append((event.type, event.name)))
            await sandbox.files.write("new", "1")
            for _ in range(500):
                if (FilesystemEventType.WRITE, "new") in seen:
                    break
                await asyncio.sleep(0.02)
            self.assertIn((FilesystemEventType.CREATE, "new"), seen)
            self.assertIn((FilesystemEventType.WRITE, "new"), seen)
            await watch.stop()
            waiting = asyncio.create_task(sandbox.commands.run("sleep 1000", timeout=0))
            await asyncio.sleep(0.3)
        finally:
            self.assertTrue(await sandbox.kill())
        with self.assertRaises(SandboxException):
            await waiting
