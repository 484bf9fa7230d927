"""What E2B's Python client does against our server; run by python.test.ts, which gives the address and the key."""

import asyncio
import gzip
import io
import unittest
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone

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
from e2b.exceptions import AuthenticationException, InvalidArgumentException, SandboxNotFoundException
from python_support import GVISOR, STRANGER, eventually, visit


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

    def test_streams_input(self):
        handle = self.sandbox.commands.run("cat", background=True, stdin=True)
        self.sandbox.commands.stream_input(handle.pid, (f"{index}\n" for index in range(3)))
        handle.close_stdin()
        self.assertEqual(handle.wait().stdout, "0\n1\n2\n")

    def test_hands_output_out_as_it_comes(self):
        out, err = [], []
        self.sandbox.commands.run("echo 1; echo 2 >&2; echo 3", on_stdout=out.append, on_stderr=err.append)
        self.assertEqual(("".join(out), "".join(err)), ("1\n3\n", "2\n"))

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

    def test_connects_to_and_kills_terminals(self):
        terminal = self.sandbox.pty.create(PtySize(rows=24, cols=80), envs={"FROM_PTY": "yes"}, cwd="/tmp", timeout=0)
        terminal.disconnect()
        again = self.sandbox.pty.connect(terminal.pid)
        self.sandbox.pty.send_stdin(terminal.pid, b"echo $FROM_PTY in $PWD; exit 3\n")
        seen = []
        with self.assertRaises(CommandExitException) as failure:
            again.wait(on_pty=seen.append)
        self.assertEqual(failure.exception.exit_code, 3)
        self.assertIn(b"yes in /tmp", b"".join(seen))
        other = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.assertTrue(self.sandbox.pty.kill(other.pid))
        self.assertFalse(self.sandbox.pty.kill(999_999))

    def test_reads_and_writes_files(self):
        self.assertEqual(self.sandbox.files.write("text.txt", "häß").path, "/home/user/text.txt")
        self.assertEqual(self.sandbox.files.read("text.txt"), "häß")
        self.assertEqual(bytes(self.sandbox.files.read("text.txt", format="bytes")), "häß".encode())
        self.assertEqual(b"".join(self.sandbox.files.read("text.txt", format="stream")), "häß".encode())
        self.sandbox.files.write("packed.txt", "again " * 1000, gzip=True)
        self.assertEqual(self.sandbox.files.read("packed.txt", gzip=True), "again " * 1000)
        written = self.sandbox.files.write_files([{"path": "/app/a b", "data": "1"}, {"path": "c", "data": b"2"}])
        self.assertEqual([file.path for file in written], ["/app/a b", "/home/user/c"])

    def test_writes_streams_for_the_user_asked_for(self):
        self.sandbox.files.write("/root/large", io.BytesIO(b"x" * 5_000_000), user="root")
        info = self.sandbox.files.get_info("/root/large")
        self.assertEqual((info.size, info.owner, info.permissions), (5_000_000, "root", "-rw-r--r--"))
        self.sandbox.files.write("empty", "")
        self.assertEqual(self.sandbox.files.read("empty"), "")

    def test_notes_metadata(self):
        tries = "import os; open('tried', 'w').close(); os.setxattr('tried', 'user.tried', b'yes')"
        # An older gVisor has no attributes.
        if self.sandbox.commands.run(f'python3 -c "{tries}" 2>/dev/null && echo yes; rm tried').stdout != "yes\n":
            with self.assertRaisesRegex(SandboxException, "501"):
                self.sandbox.files.write("noted", "x", metadata={"author": "me"})
            return
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
        self.sandbox.files.remove("watched/below/new")
        eventually(lambda: seen.extend(watch.get_new_events()) or any(event.type == FilesystemEventType.REMOVE for event in seen))
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
        git, repository = self.sandbox.git, "/home/user/repository"
        git.init(repository, initial_branch="main")
        git.configure_user("Somebody", "somebody@example.com")
        git.set_config("core.editor", "true", scope="local", path=repository)
        self.assertEqual(git.get_config("core.editor", scope="local", path=repository), "true")
        self.sandbox.files.write(f"{repository}/file", "one")
        self.assertEqual([file.name for file in git.status(repository).file_status], ["file"])
        git.add(repository)
        self.assertTrue(git.status(repository).has_staged)
        git.commit(repository, "First")
        self.assertTrue(git.status(repository).is_clean)
        git.create_branch(repository, "other")
        git.checkout_branch(repository, "main")
        branches = git.branches(repository)
        self.assertEqual((branches.current_branch, sorted(branches.branches)), ("main", ["main", "other"]))
        git.delete_branch(repository, "other", force=True)
        self.sandbox.files.write(f"{repository}/file", "two")
        git.restore(repository, paths=["file"])
        self.assertEqual(self.sandbox.files.read(f"{repository}/file"), "one")
        git.clone(f"file://{repository}", path="/home/user/cloned")
        self.assertEqual(self.sandbox.files.read("cloned/file"), "one")
        self.assertEqual(git.remote_get("/home/user/cloned", "origin"), f"file://{repository}")


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

    def test_pages_and_orders(self):
        made = [Sandbox.create(metadata={"group": "pages"}) for _ in range(3)]
        try:
            ids = [sandbox.sandbox_id for sandbox in made]

            def pages(**options):
                paginator, found = Sandbox.list(query=SandboxQuery(metadata={"group": "pages"}), limit=2, **options), []
                while paginator.has_next:
                    found.append([one.sandbox_id for one in paginator.next_items()])
                return found

            self.assertEqual(pages(), [ids[:0:-1], ids[:1]])
            self.assertEqual(pages(order="asc"), [ids[:2], ids[2:]])
            paused = SandboxQuery(metadata={"group": "pages"}, state=[SandboxState.PAUSED])
            self.assertEqual(Sandbox.list(query=paused).next_items(), [])
        finally:
            for sandbox in made:
                sandbox.kill()

    def test_lives_longer_or_shorter(self):
        sandbox = Sandbox.create(timeout=60)
        left = lambda: sandbox.get_info().end_at - datetime.now(timezone.utc)
        Sandbox.connect(sandbox.sandbox_id, timeout=10)
        self.assertGreater(left(), timedelta(seconds=40))
        sandbox.connect(timeout=600)
        self.assertGreater(left(), timedelta(seconds=500))
        sandbox.set_timeout(1)
        eventually(lambda: not sandbox.is_running())
        with self.assertRaises(SandboxException):
            sandbox.files.read("note")
        self.assertFalse(Sandbox.kill(sandbox.sandbox_id))
        for attempt in (Sandbox.connect, Sandbox.get_info, lambda one: Sandbox.set_timeout(one, 10)):
            with self.assertRaises(SandboxNotFoundException):
                attempt(sandbox.sandbox_id)

    def test_shows_ports(self):
        page = "python3 -m http.server 8000"
        public = Sandbox.create()
        private = Sandbox.create(network={"allow_public_traffic": False})
        try:
            for sandbox in (public, private):
                sandbox.files.write("index.html", sandbox.sandbox_id)
                sandbox.commands.run(page, background=True, timeout=0)
            eventually(lambda: visit(public.get_host(8000)) == (200, public.sandbox_id))
            self.assertEqual(visit(public.get_host(8001))[0], 502)
            token = {"e2b-traffic-access-token": private.traffic_access_token}
            eventually(lambda: visit(private.get_host(8000), token) == (200, private.sandbox_id))
            self.assertEqual(visit(private.get_host(8000))[0], 403)
        finally:
            public.kill()
            private.kill()

    def test_network_rules(self):
        sandbox = Sandbox.create(network={"deny_out": [ALL_TRAFFIC]}, allow_internet_access=False)
        try:
            self.assertFalse(sandbox.get_info().allow_internet_access)
            self.assertEqual(sandbox.commands.run("(exec 3<>/dev/tcp/1.1.1.1/80) 2>/dev/null || echo none").stdout, "none\n")
            sandbox.update_network({"deny_out": [ALL_TRAFFIC]})
            for wish in (
                {"allow_out": ["example.com"]},
                {"rules": {"example.com": [{"transform": {"headers": {"A": "b"}}}]}},
                {"egress_proxy": {"address": "proxy.example.com:1080"}},
                {"dns_servers": ["1.1.1.1"]},
            ):
                with self.assertRaisesRegex(SandboxException, "501"):
                    Sandbox.create(network=wish)
                with self.assertRaisesRegex(SandboxException, "501"):
                    sandbox.update_network(wish)
        finally:
            sandbox.kill()

    def test_pauses_with_files_alone(self):
        sandbox = Sandbox.create()
        sandbox.files.write("note", "kept")
        if not GVISOR:
            for pretended in (sandbox.pause, sandbox.fork, sandbox.create_snapshot):
                with self.assertRaisesRegex(SandboxException, "501"):
                    pretended()
            with self.assertRaisesRegex(SandboxException, "501"):
                Sandbox.create(lifecycle={"on_timeout": "pause"})
        self.assertTrue(sandbox.pause(mode="filesystem"))
        self.assertFalse(sandbox.pause(mode="filesystem"))
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
        sandbox.connect()
        self.assertEqual(sandbox.files.read("note"), "kept")
        sandbox.kill()

    def test_pauses_by_itself_with_files_alone(self):
        sandbox = Sandbox.create(lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
        sandbox.files.write("note", "kept")
        sandbox.set_timeout(1)
        eventually(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        self.assertEqual(Sandbox.connect(sandbox.sandbox_id).files.read("note"), "kept")
        sandbox.kill()

    def test_snapshots_of_files_alone(self):
        sandbox = Sandbox.create()
        sandbox.files.write("note", "kept")
        sandbox.commands.run("sleep 1000", background=True)
        snapshot = sandbox.create_snapshot(name="files-alone", mode="filesystem")
        self.assertEqual(snapshot.names, ["files-alone"])
        self.assertEqual(len(sandbox.commands.list()), 1)
        child = Sandbox.create("files-alone")
        self.assertEqual(child.files.read("note"), "kept")
        self.assertEqual(child.commands.list(), [])
        child.kill()
        sandbox.kill()
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertFalse(Sandbox.delete_snapshot(snapshot.snapshot_id))

    def test_refuses_strangers_wrong_keys_and_unknown_templates(self):
        sandbox = Sandbox.create()
        for attempt in (Sandbox.connect, Sandbox.get_info, Sandbox.get_metrics, Sandbox.pause, Sandbox.fork, Sandbox.create_snapshot):
            with self.assertRaises(NotFoundException):
                attempt(sandbox.sandbox_id, api_key=STRANGER)
        self.assertFalse(Sandbox.kill(sandbox.sandbox_id, api_key=STRANGER))
        self.assertTrue(sandbox.kill())
        with self.assertRaises(AuthenticationException):
            Sandbox.create(api_key="e2b_" + "0" * 40)
        with self.assertRaisesRegex(SandboxException, "404"):
            Sandbox.create("no-such-template")


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

    async def test_lives_terminals_and_git(self):
        sandbox = await AsyncSandbox.create(timeout=60, metadata={"asynchronous": "yes"})
        try:
            again = await AsyncSandbox.connect(sandbox.sandbox_id)
            await again.files.write("note", "same")
            self.assertEqual(await sandbox.files.read("note"), "same")
            listed = await AsyncSandbox.list(query=SandboxQuery(metadata={"asynchronous": "yes"})).next_items()
            self.assertEqual([one.sandbox_id for one in listed], [sandbox.sandbox_id])
            self.assertGreater((await sandbox.get_metrics())[0].mem_total, 0)
            seen = []
            terminal = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=seen.append)
            await sandbox.pty.send_stdin(terminal.pid, b"echo wide-$(tput cols); exit\n")
            self.assertEqual((await terminal.wait()).exit_code, 0)
            self.assertIn(b"wide-80", b"".join(seen))
            handle = await sandbox.commands.run("cat", background=True, stdin=True)
            await sandbox.commands.send_stdin(handle.pid, "in")
            await sandbox.commands.close_stdin(handle.pid)
            self.assertEqual((await handle.wait()).stdout, "in")
            await sandbox.git.init("/home/user/repository")
            self.assertTrue((await sandbox.git.status("/home/user/repository")).is_clean)
            await sandbox.set_timeout(120)
            await sandbox.pause(mode="filesystem")
            self.assertFalse(await sandbox.is_running())
            await sandbox.connect()
            self.assertEqual(await sandbox.files.read("note"), "same")
        finally:
            await sandbox.kill()
