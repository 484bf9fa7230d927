/** Code in contexts through the published code interpreter. */
import { Sandbox, type Execution } from '@e2b/code-interpreter';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { E2bGround } from './ground.ts';

export function codeInterpreterSuite(ground: () => E2bGround): void {
  describe('the code interpreter', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await Sandbox.create({ ...ground().access, envs: { OF_SANDBOX: 'everywhere' } });
    });
    afterAll(() => sandbox?.kill());
    const printed = ({ logs }: Execution) => logs.stdout.join('');

    it('has state, results, and output as it comes', async () => {
      const told: string[] = [];
      const first = await sandbox.runCode(
        'import sys, time\nx = 1\nprint("out")\ntime.sleep(0.3)\nprint("wrong", file=sys.stderr)\nx + 1',
        {
          onStdout: ({ line }) => void told.push(`stdout ${line}`),
          onStderr: ({ line }) => void told.push(`stderr ${line}`),
          onResult: ({ text }) => void told.push(`result ${text}`),
        },
      );
      expect(told).toEqual(['stdout out\n', 'stderr wrong\n', 'result 2']);
      expect(first).toMatchObject({ text: '2', error: undefined, logs: { stdout: ['out\n'], stderr: ['wrong\n'] } });
      const second = await sandbox.runCode('x += 1\nf"x is {x}"');
      expect(second.text).toBe('x is 2');
      expect(second.executionCount).toBe(first.executionCount! + 1);
      expect(printed(await sandbox.runCode('import subprocess; _ = subprocess.run(["echo", "child"])'))).toBe('child\n');
      expect(printed(await sandbox.runCode('!echo shell'))).toBe('shell\n');
      expect((await sandbox.runCode('import asyncio\nawait asyncio.sleep(0.01)\n"waited"')).text).toBe('waited');
      expect((await sandbox.runCode('x = 5')).results).toEqual([]);
    });

    it('tells errors by name, value and where they were', async () => {
      const { error } = await sandbox.runCode('def divide(a):\n  return a / 0\n\ndivide(1)');
      expect(error).toMatchObject({ name: 'ZeroDivisionError', value: 'division by zero' });
      expect(error!.traceback).toMatch(/line 4, in <module>[^]*line 2, in divide[^]*return a \/ 0/);
      expect(error!.traceback).not.toContain('kernel.py');
      expect((await sandbox.runCode('def')).error).toMatchObject({ name: 'SyntaxError' });
      expect((await sandbox.runCode('exit(3)')).error).toMatchObject({ name: 'SystemExit', value: '3' });
      expect((await sandbox.runCode('input()')).error).toMatchObject({ name: 'EOFError' });
      expect((await sandbox.runCode('1 + 1')).text).toBe('2');
    });

    it('shows values in every form that they have', async () => {
      const { results } = await sandbox.runCode(`
class Everything:
    def __repr__(self): return "all of it"
    def _repr_html_(self): return "<b>all</b>"
    def _repr_markdown_(self): return "**all**"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_jpeg_(self): return b"\\xff\\xd8"
    def _repr_latex_(self): return "$all$"
    def _repr_json_(self): return {"all": [1, None]}
    def _repr_pdf_(self): raise ValueError
display(Everything())
Everything()`);
      expect(results.map(({ isMainResult }) => isMainResult)).toEqual([false, true]);
      expect(results[1]).toMatchObject({
        text: 'all of it',
        html: '<b>all</b>',
        markdown: '**all**',
        svg: '<svg/>',
        png: Buffer.from('\x89PNG', 'latin1').toString('base64'),
        jpeg: Buffer.from('\xff\xd8', 'latin1').toString('base64'),
        latex: '$all$',
        json: { all: [1, null] },
      });
      expect(results[1]!.pdf).toBeUndefined();
    });

    it('draws charts, if the sandbox has what draws them', async (test) => {
      const { text } = await sandbox.runCode('import importlib.util\nimportlib.util.find_spec("matplotlib") is not None');
      if (text !== 'True') {
        console.warn('Charts of the code interpreter are not tested: matplotlib is not installed');
        return test.skip('matplotlib is not installed');
      }
      const { results, error } = await sandbox.runCode(
        'import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()\nplt.bar(["a"], [1]);',
      );
      expect(error).toBeUndefined();
      const images = results.filter(({ png }) => png !== undefined);
      expect(images).toHaveLength(2);
      for (const { png } of images) expect(Buffer.from(png!, 'base64').subarray(1, 4).toString()).toBe('PNG');
    });

    it('keeps contexts apart, each with its own language, directory and state', async () => {
      await sandbox.runCode('shared = 1');
      const python = await sandbox.createCodeContext({ cwd: '/tmp' });
      expect(python).toMatchObject({ language: 'python', cwd: '/tmp' });
      expect((await sandbox.runCode('import os\nos.getcwd()', { context: python })).text).toBe('/tmp');
      expect((await sandbox.runCode('shared', { context: python })).error).toMatchObject({ name: 'NameError' });
      await sandbox.runCode('own = 2', { context: python });
      const listed = (await sandbox.listCodeContexts()).map(({ id }) => id);
      expect(listed).toContain(python.id);

      await sandbox.restartCodeContext(python);
      expect((await sandbox.runCode('own', { context: python })).error).toMatchObject({ name: 'NameError' });
      // One that dies takes nobody with it, and begins anew.
      const died = await sandbox.runCode('import os\nos.kill(os.getpid(), 9)', { context: python });
      expect(died.error).toMatchObject({ name: 'ContextDied' });
      expect((await sandbox.runCode('"anew"', { context: python })).text).toBe('anew');
      expect((await sandbox.runCode('shared')).text).toBe('1');

      await sandbox.removeCodeContext(python);
      await expect(sandbox.runCode('1', { context: python })).rejects.toThrow(/not found/);
      await expect(sandbox.removeCodeContext(python)).rejects.toThrow(/not found/);
      await expect(sandbox.createCodeContext({ language: 'cobol' })).rejects.toThrow(/400/);
      await expect(sandbox.createCodeContext({ cwd: '/no/such' })).rejects.toThrow(/400/);
    });

    it('runs bash and JavaScript', async () => {
      const bash = (code: string) => sandbox.runCode(code, { language: 'bash' });
      expect(printed(await bash('WORD=kept; cd /tmp; echo "$WORD"'))).toBe('kept\n');
      expect(printed(await bash('echo "$WORD $PWD"'))).toBe('kept /tmp\n');
      expect((await bash('exit_with() { return 4; }; exit_with')).error).toMatchObject({ name: 'ExitStatus', value: '4' });
      const js = (code: string) => sandbox.runCode(code, { language: 'js' });
      const { text, logs } = await js('const two = 2; console.log("printed"); ({ two })');
      expect([text, logs.stdout.join('')]).toEqual(['{ two: 2 }', 'printed\n']);
      expect((await js('two + 1')).text).toBe('3');
      expect((await js('await Promise.resolve(1); return two')).text).toBe('2');
      expect((await js('throw new RangeError("far")')).error).toMatchObject({ name: 'RangeError', value: 'far' });
    });

    it('has the environment of the sandbox, and of one run alone', async () => {
      const both = "import os\nf\"{os.environ.get('OF_SANDBOX')} {os.environ.get('OF_RUN')}\"";
      expect((await sandbox.runCode(both, { envs: { OF_RUN: 'once' } })).text).toBe('everywhere once');
      expect((await sandbox.runCode(both)).text).toBe('everywhere None');
      expect(printed(await sandbox.runCode('echo "$OF_SANDBOX $OF_RUN"', { language: 'bash', envs: { OF_RUN: 'it\'s "once"' } }))).toBe(
        'everywhere it\'s "once"\n',
      );
      expect(printed(await sandbox.runCode('echo "$OF_SANDBOX $OF_RUN"', { language: 'bash' }))).toBe('everywhere \n');
    });

    it('interrupts what takes too long, and goes on with what it had', async () => {
      await sandbox.runCode('before = 7');
      await expect(sandbox.runCode('while True: pass', { timeoutMs: 300 })).rejects.toThrow(/timed out/);
      expect((await sandbox.runCode('before')).text).toBe('7');
      // Others are not kept waiting meanwhile.
      const busy = sandbox.runCode('import time\ntime.sleep(1)\n"slept"');
      expect((await sandbox.runCode('echo free', { language: 'bash' })).logs.stdout).toEqual(['free\n']);
      expect((await busy).text).toBe('slept');
    });

    it('keeps the order and all of much output', async () => {
      const { logs } = await sandbox.runCode('for i in range(5_000): print(i, "é")');
      expect(logs.stdout.join('')).toBe(Array.from({ length: 5_000 }, (_, index) => `${index} é\n`).join(''));
    });

    it('is one for each project, and refuses strangers', async () => {
      const other = await Sandbox.create(ground().stranger);
      try {
        expect((await other.runCode('1 + 1')).text).toBe('2');
      } finally {
        await other.kill();
      }
      await expect(Sandbox.connect(sandbox.sandboxId, ground().stranger)).rejects.toThrow();
      const closed = await Sandbox.create({ ...ground().access, network: { allowPublicTraffic: false } });
      try {
        expect((await closed.runCode('"mine"')).text).toBe('mine');
        const answer = await fetch(`${ground().url}/execute`, {
          method: 'POST',
          headers: { 'e2b-sandbox-id': closed.sandboxId, 'e2b-sandbox-port': '49999' },
          body: JSON.stringify({ code: '1' }),
        });
        expect(answer.status).toBe(403);
      } finally {
        await closed.kill();
      }
    });
  });
}
