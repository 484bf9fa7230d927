"""Code in contexts through E2B's code interpreter for Python; run by python.test.ts."""

import unittest

from e2b_code_interpreter import AsyncSandbox, Sandbox


class Blocking(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(envs={"OF_SANDBOX": "everywhere"})
        cls.addClassCleanup(cls.sandbox.kill)

    def test_has_state_results_and_output(self):
        out, err, results = [], [], []
        first = self.sandbox.run_code(
            "import sys\nx = 1\nprint('out')\nprint('wrong', file=sys.stderr)\nx + 1",
            on_stdout=lambda message: out.append(message.line),
            on_stderr=lambda message: err.append(message.line),
            on_result=lambda result: results.append(result.text),
        )
        self.assertEqual((out, err, results, first.text, first.error), (["out\n"], ["wrong\n"], ["2"], "2", None))
        self.assertEqual(self.sandbox.run_code("x + 2").text, "3")

    def test_tells_errors(self):
        error = self.sandbox.run_code("1 / 0").error
        self.assertEqual((error.name, error.value), ("ZeroDivisionError", "division by zero"))
        self.assertIn("1 / 0", error.traceback)

    def test_keeps_contexts_apart(self):
        context = self.sandbox.create_code_context(cwd="/tmp")
        self.assertEqual(self.sandbox.run_code("own = 1\nimport os\nos.getcwd()", context=context).text, "/tmp")
        self.assertEqual(self.sandbox.run_code("own").error.name, "NameError")
        self.assertIn(context.id, [one.id for one in self.sandbox.list_code_contexts()])
        self.sandbox.restart_code_context(context)
        self.assertEqual(self.sandbox.run_code("own", context=context).error.name, "NameError")
        self.sandbox.remove_code_context(context)
        with self.assertRaises(Exception):
            self.sandbox.run_code("1", context=context)

    def test_runs_other_languages_with_their_environment(self):
        run = self.sandbox.run_code("echo $OF_SANDBOX $OF_RUN", language="bash", envs={"OF_RUN": "once"})
        self.assertEqual("".join(run.logs.stdout), "everywhere once\n")
        self.assertEqual(self.sandbox.run_code("1 + 1", language="js").text, "2")


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_runs_code(self):
        sandbox = await AsyncSandbox.create()
        try:
            self.assertEqual((await sandbox.run_code("x = 20\nx + 1")).text, "21")
            self.assertEqual((await sandbox.run_code("1 / 0")).error.name, "ZeroDivisionError")
        finally:
            await sandbox.kill()
