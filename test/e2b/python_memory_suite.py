"""What E2B's Python client does with memory that is kept; run by python.test.ts on gVisor."""

import unittest

from e2b import AsyncSandbox, Sandbox, SandboxState
from python_support import eventually


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

    def test_pauses_and_begins_anew_if_that_is_asked_for(self):
        self.sandbox.pause(strict=True)
        self.sandbox.connect(on_resume="reboot")
        self.assertEqual(self.sandbox.commands.list(), [])
        self.assertEqual(self.sandbox.files.read("/tmp/count").strip(), "1")

    def test_stays_paused_without_auto_resume(self):
        sandbox = self.keep(Sandbox.create(lifecycle={"on_timeout": "pause"}))
        info = sandbox.get_info()
        self.assertEqual(info.lifecycle, {"on_timeout": "pause", "auto_resume": False})
        sandbox.set_timeout(1)
        eventually(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        with self.assertRaises(Exception):
            sandbox.commands.run("true")
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)

    def test_forks_more_than_once(self):
        children = Sandbox.fork(self.sandbox.sandbox_id, count=2, timeout=60)
        for child in children:
            self.keep(child)
            self.assertEqual(self.count(child), 2)

    def test_forks(self):
        (child,) = self.sandbox.fork()
        self.keep(child)
        self.assertEqual(self.count(child), 2)
        self.assertEqual(self.count(child), 3)
        self.assertEqual(self.count(self.sandbox), 2)

    def test_starts_from_a_snapshot(self):
        snapshot = self.sandbox.create_snapshot()
        self.assertIn(snapshot.snapshot_id, [one.snapshot_id for one in self.sandbox.list_snapshots().next_items()])
        child = self.keep(Sandbox.create(snapshot.snapshot_id))
        self.assertEqual(self.count(child), 2)
        child.kill()
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_pauses_forks_and_snapshots(self):
        made = [await AsyncSandbox.create()]
        try:
            sandbox = made[0]
            handle = await sandbox.commands.run("sleep 1000", background=True, timeout=0)
            self.assertTrue(await sandbox.pause())
            await sandbox.connect()
            self.assertEqual([one.pid for one in await sandbox.commands.list()], [handle.pid])
            made += await sandbox.fork()
            self.assertEqual([one.pid for one in await made[1].commands.list()], [handle.pid])
            snapshot = await sandbox.create_snapshot()
            made.append(await AsyncSandbox.create(snapshot.snapshot_id))
            self.assertEqual([one.pid for one in await made[2].commands.list()], [handle.pid])
        finally:
            for one in made:
                await one.kill()
