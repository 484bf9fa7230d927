"""Templates from the builder of E2B's Python client; run by python.test.ts."""

import pathlib
import tempfile
import unittest

from e2b import AsyncTemplate, BuildException, Sandbox, SandboxException, Template, wait_for_port
from python_support import GVISOR, STRANGER, visit


class Templates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        site = pathlib.Path(cls.folder.name, "site")
        site.mkdir()
        (site / "index.html").write_text("served")

    def builder(self):
        return Template(file_context_path=self.folder.name)

    def create(self, template):
        sandbox = Sandbox.create(template)
        self.addCleanup(sandbox.kill)
        return sandbox

    def test_builds_with_every_kind_of_step(self):
        logs = []
        template = (
            self.builder()
            .from_template("base")
            .copy("site", "/srv/site", user="root", mode=0o755)
            .set_envs({"GREETING": "hello"})
            .set_workdir("/srv/work")
            .run_cmd(['echo "$GREETING" > greeting', "echo told"])
            .make_dir("/srv/work/made")
            .make_symlink("/srv/site", "/srv/work/link")
            .run_cmd("id -un > /srv/root", user="root")
            .set_user("root")
        )
        info = Template.build(template, "py-steps", cpu_count=1, memory_mb=512, on_build_logs=lambda entry: logs.append(entry.message))
        self.assertEqual((info.name, info.tags), ("py-steps", ["default"]))
        self.assertIn("[stdout]: told", logs)
        sandbox = self.create("py-steps")
        told = sandbox.commands.run("cat greeting link/index.html /srv/root; id -un; pwd; ls -d made").stdout
        self.assertEqual(told, "hello\nservedroot\nroot\n/srv/work\nmade\n")
        self.assertTrue(Template.exists("py-steps"))
        self.assertFalse(Template.exists("py-steps", api_key=STRANGER))

    def test_starts_what_it_starts(self):
        template = self.builder().from_base_image().copy("site", "site").set_start_cmd("cd site && python3 -m http.server 8000", wait_for_port(8000))
        Template.build(template, "py-serving")
        self.assertEqual(visit(self.create("py-serving").get_host(8000)), (200, "served"))

    def test_tags_and_background(self):
        info = Template.build_in_background(self.builder().from_template("base").run_cmd("echo 1 > version"), "py-tagged:v1")
        status = Template.get_build_status(info)
        while status.status.value in ("waiting", "building"):
            status = Template.get_build_status(info)
        self.assertEqual(status.status.value, "ready")
        self.assertEqual(Template.assign_tags("py-tagged:v1", ["stable"]).tags, ["stable"])
        self.assertEqual(sorted(one.tag for one in Template.get_tags("py-tagged")), ["stable", "v1"])
        self.assertEqual(self.create("py-tagged:stable").files.read("version"), "1\n")
        Template.remove_tags("py-tagged", ["v1"])
        with self.assertRaisesRegex(SandboxException, "404"):
            Sandbox.create("py-tagged:v1")

    def test_says_what_failed(self):
        with self.assertRaisesRegex(BuildException, "exit status 3"):
            Template.build(self.builder().from_template("base").run_cmd("exit 3"), "py-failing")
        with self.assertRaisesRegex(BuildException, "invalid username: 'root123'"):
            Template.build(self.builder().from_template("base").run_cmd("true", user="root123"), "py-failing")
        with self.assertRaisesRegex(BuildException, "ubuntu:22.04"):
            Template.build(self.builder().from_ubuntu_image("22.04"), "py-failing")
        self.assertFalse(Template.exists("py-failing"))


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_builds(self):
        await AsyncTemplate.build(AsyncTemplate().from_template("base").run_cmd("echo built > note"), "py-async")
        sandbox = Sandbox.create("py-async")
        try:
            self.assertEqual(sandbox.files.read("note"), "built\n")
        finally:
            sandbox.kill()
