"""What E2B's Python client does with memory that is kept; run by python.test.ts on gVisor."""

import time
import unittest

from e2b import Sandbox, SandboxState


def eventually(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("it did not become true")
        time.sleep(0.05)


class Memory(unittest.TestCase):
    """A shell that counts in memory alone: a number that goes on is the same process."""

    def setUp(self):
        self.made = []
        self.sandbox = self.keep(Sandbox.create())
        self.counter = self.sandbox.commands.run(
            "n=0; while read line; do n=$((n+1)); echo $n > /tmp/count; done", background=True, stdin=True, timeout=0
        )
        self.assertEqual(self.count(self.sandbox), 1)

    def tearDown(self):
        for sandbox in self.made:
            sandbox.kill()

    def keep(self, sandbox):
        self.made.append(sandbox)
        return sandbox

    def count(self, sandbox):
        sandbox.files.remove("/tmp/count")
        sandbox.commands.send_stdin(self.counter.pid, "\n")
        eventually(lambda: sandbox.files.exists("/tmp/count") and sandbox.files.read("/tmp/count") != "")
        return int(sandbox.files.read("/tmp/count"))

    def test_pauses_and_goes_on(self):
        self.sandbox.pause()
        self.assertEqual(self.sandbox.get_info().state, SandboxState.PAUSED)
        self.assertFalse(self.sandbox.is_running())
        self.sandbox.connect()
        self.assertEqual(self.count(self.sandbox), 2)

    def test_pauses_by_itself_and_wakes_for_a_command(self):
        sandbox = self.keep(Sandbox.create(lifecycle={"on_timeout": "pause", "auto_resume": True}))
        sandbox.files.write("note", "kept")
        sandbox.set_timeout(1)
        eventually(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        self.assertEqual(sandbox.commands.run("cat note").stdout, "kept")

    def test_forks(self):
        (child,) = self.sandbox.fork()
        self.keep(child)
        self.assertEqual(self.count(child), 2)
        self.assertEqual(self.count(child), 3)
        self.assertEqual(self.count(self.sandbox), 2)

    def test_starts_from_a_snapshot(self):
        snapshot = self.sandbox.create_snapshot()
        child = self.keep(Sandbox.create(snapshot.snapshot_id))
        self.assertEqual(self.count(child), 2)
        child.kill()
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))
