/** Code in contexts through the published code interpreter. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox, Template, type Execution } from '@e2b/code-interpreter';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bringMatplotlib } from './bring-matplotlib.ts';
import type { E2bPlatform } from './e2b-platform.ts';

export function codeInterpreterSuite(platform: () => E2bPlatform): void {
  describe('the code interpreter', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await Sandbox.create({ ...platform().access, envs: { OF_SANDBOX: 'everywhere' } });
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
      expect(first).toMatchObject({
        text: '2',
        error: undefined,
        logs: { stdout: ['out\n'], stderr: ['wrong\n'] },
      });
      const second = await sandbox.runCode('x += 1\nf"x is {x}"');
      expect(second.text).toBe('x is 2');
      expect(second.executionCount).toBe(first.executionCount! + 1);
      expect(printed(await sandbox.runCode('import subprocess; _ = subprocess.run(["echo", "child"])'))).toBe(
        'child\n',
      );
      expect(printed(await sandbox.runCode('!echo shell'))).toBe('shell\n');
      expect((await sandbox.runCode('import asyncio\nawait asyncio.sleep(0.01)\n"waited"')).text).toBe(
        'waited',
      );
      expect((await sandbox.runCode('x = 5')).results).toEqual([]);
    });

    it('tells errors by name, value and where they were', async () => {
      const { error } = await sandbox.runCode('def divide(a):\n  return a / 0\n\ndivide(1)');
      expect(error).toMatchObject({ name: 'ZeroDivisionError', value: 'division by zero' });
      expect(error!.traceback).toMatch(/line 4, in <module>[^]*line 2, in divide[^]*return a \/ 0/);
      expect(error!.traceback).not.toContain('kernel');
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

    it('draws charts, and tells what is in them', { timeout: 300_000 }, async (test) => {
      const has = 'import importlib.util\nimportlib.util.find_spec("matplotlib") is not None';
      if ((await sandbox.runCode(has)).text !== 'True') {
        const why = await bringMatplotlib(sandbox);
        if (why !== undefined) {
          console.warn(
            `CHARTS OF THE CODE INTERPRETER ARE NOT TESTED: the sandbox has no matplotlib, and it cannot be installed: ${why}`,
          );
          return test.skip(`matplotlib cannot be installed: ${why}`);
        }
      }
      // A process of its own sees what was brought.
      const context = await sandbox.createCodeContext({ requestTimeoutMs: 60_000 });
      const draw = async (code: string) => {
        const { results, error } = await sandbox.runCode(`import matplotlib.pyplot as plt\n${code}`, {
          context,
          timeoutMs: 120_000,
        });
        expect(error).toBeUndefined();
        return results.filter(({ png }) => png !== undefined);
      };
      const images = await draw(`
plt.plot([1, 2, 3], [4, 5, 6], label="up")
plt.title("Growth"); plt.xlabel("Time (s)"); plt.ylabel("Height")
plt.show()
plt.bar(["a", "b"], [1, 2], label="group")
plt.bar(["a", "b"], [3, 4], bottom=[1, 2]);`);
      expect(images).toHaveLength(2);
      for (const { png } of images) {
        const image = Buffer.from(png!, 'base64');
        expect(image.subarray(0, 8)).toEqual(Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'));
        // Its width and height stand at the beginning.
        expect(image.readUInt32BE(16)).toBeGreaterThan(300);
        expect(image.readUInt32BE(20)).toBeGreaterThan(200);
      }
      expect(images[0]!.chart).toMatchObject({
        type: 'line',
        title: 'Growth',
        x_label: 'Time (s)',
        x_unit: 's',
        y_label: 'Height',
        x_scale: 'linear',
        elements: [
          {
            label: 'up',
            points: [
              [1, 4],
              [2, 5],
              [3, 6],
            ],
          },
        ],
      });
      expect(images[1]!.chart).toMatchObject({
        type: 'bar',
        elements: [
          { label: 'a', value: 1, group: 'group' },
          { label: 'b', value: 2, group: 'group' },
          { label: 'a', value: 3 },
          { label: 'b', value: 4 },
        ],
      });
      const kinds = await draw(`
for make in (lambda: plt.scatter([1, 2], [3, float("nan")]), lambda: plt.pie([1, 3], labels=["p", "q"]),
             lambda: plt.boxplot([[1, 2, 3, 4, 30]], patch_artist=True), lambda: plt.imshow([[1, 2]]),
             lambda: [axes.plot([1, 2]) for axes in plt.subplots(1, 2)[1]]):
    make(); plt.show()`);
      expect(kinds.map(({ chart }) => chart?.type)).toEqual([
        'scatter',
        'pie',
        'box_and_whisker',
        'unknown',
        'superchart',
      ]);
      expect(kinds[1]!.chart!.elements).toEqual([
        { label: 'p', angle: 90, radius: 1 },
        { label: 'q', angle: 270, radius: 1 },
      ]);
      expect(kinds[2]!.chart!.elements).toMatchObject([
        { min: 1, first_quartile: 2, median: 3, third_quartile: 4, max: 4, outliers: [30] },
      ]);
      const { results } = await sandbox.runCode(
        'import pandas\npandas.DataFrame({"a": [1, 2], "b": ["x", None]})',
        {
          context,
          timeoutMs: 120_000,
        },
      );
      expect(results[0]!.data).toEqual({ a: [1, 2], b: ['x', null] });
      expect(results[0]!.html).toContain('<table');
      const image = 'from PIL import Image\nimage = Image.new("RGB", (4, 4))\n';
      expect(await draw(`${image}image.show()`)).toHaveLength(1);
      expect(await draw(`${image}image.save("/tmp/image.png")`)).toHaveLength(1);
      expect(kinds[1]!.chart!.title).toBeNull();
      expect(kinds[0]!.chart).toMatchObject({ title: null, x_label: null, y_label: null, x_unit: null });
      const displayed = await sandbox.runCode(
        `from IPython.display import HTML, clear_output, display
clear_output()
handle = display(HTML("<b>bold</b>"), display_id=True)
handle.update(HTML("<i>later</i>"))
display({"text/plain": "plain", "text/html": "<u>raw</u>"}, raw=True)`,
        { context, timeoutMs: 120_000 },
      );
      expect([displayed.error, printed(displayed)]).toEqual([undefined, '']);
      expect(displayed.results).toMatchObject([
        { html: '<b>bold</b>', isMainResult: false },
        { html: '<i>later</i>' },
        { text: 'plain', html: '<u>raw</u>' },
      ]);
      // The last figure is a result as well, and programs that are started draw as they always do.
      expect((await draw('plt.figure()')).map(({ isMainResult }) => isMainResult)).toEqual([true]);
      const started = await sandbox.runCode(
        '!python3 -c "import matplotlib.pyplot as p; print(p.get_backend())"',
        {
          context,
          timeoutMs: 120_000,
        },
      );
      expect(printed(started).toLowerCase()).toBe('agg\n');
    });

    it('keeps contexts apart, each with its own language, directory and state', async () => {
      await sandbox.runCode('shared = 1');
      const python = await sandbox.createCodeContext({ cwd: '/tmp' });
      expect(python).toMatchObject({ language: 'python', cwd: '/tmp' });
      expect((await sandbox.runCode('import os\nos.getcwd()', { context: python })).text).toBe('/tmp');
      expect((await sandbox.runCode('shared', { context: python })).error).toMatchObject({
        name: 'NameError',
      });
      await sandbox.runCode('own = 2', { context: python });
      const listed = (await sandbox.listCodeContexts()).map(({ id }) => id);
      expect(listed).toContain(python.id);

      await sandbox.restartCodeContext(python);
      expect((await sandbox.runCode('own', { context: python })).error).toMatchObject({ name: 'NameError' });
      // A context that dies restarts, and other contexts are not affected.
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
      expect((await bash('exit_with() { return 4; }; exit_with')).error).toMatchObject({
        name: 'ExitStatus',
        value: '4',
      });
      const js = (code: string) => sandbox.runCode(code, { language: 'js' });
      const { text, logs } = await js('const two = 2; console.log("printed"); ({ two })');
      expect([text, logs.stdout.join('')]).toEqual(['{ two: 2 }', 'printed\n']);
      expect((await js('two + 1')).text).toBe('3');
      expect((await js('await Promise.resolve(1); return two')).text).toBe('2');
      expect((await js('throw new RangeError("far")')).error).toMatchObject({
        name: 'RangeError',
        value: 'far',
      });
    });

    it('runs code that is indented as a whole', async () => {
      const { text, error } = await sandbox.runCode(`
        def twice(n):
            return n * 2

        twice(21)
      `);
      expect([error, text]).toEqual([undefined, '42']);
    });

    it('imports modules and waits at the top, in JavaScript and TypeScript', async () => {
      const js = (code: string) => sandbox.runCode(code, { language: 'js' });
      const { logs } = await js(
        "import { sep } from 'fs'\nimport { basename } from 'path'\nconsole.log(basename('/a/b'))",
      );
      expect(logs.stdout.join('')).toBe('b\n');
      expect((await js("await Promise.resolve('a')")).text).toBe('a');
      expect((await js('const held = await Promise.resolve(3)')).error).toBeUndefined();
      expect((await js('held')).text).toBe('3');
      expect((await sandbox.runCode('const n: number = 2; n', { language: 'ts' })).text).toBe('2');
    });

    it('has a context of Python and one of JavaScript from the start, and says where none can be', async () => {
      const fresh = await Sandbox.create(platform().access);
      try {
        const languages = (await fresh.listCodeContexts()).map(({ language }) => language);
        expect(languages).toEqual(['python', 'javascript']);
        await expect(fresh.createCodeContext({ cwd: '/root' })).rejects.toThrow(/403/);
      } finally {
        await fresh.kill();
      }
    });

    it('is there in a sandbox of any template', async () => {
      const plain = await Sandbox.create('base', { ...platform().access, envs: { WORD: 'always' } });
      try {
        expect((await plain.runCode('6 * 7')).text).toBe('42');
        for (const language of ['python', 'bash', 'js']) {
          const show = {
            python: 'import os\nprint(os.environ["WORD"])',
            bash: 'echo $WORD',
            js: 'console.log(process.env.WORD)',
          }[language]!;
          const said = async (envs?: Record<string, string>) =>
            printed(await plain.runCode(show, { language, ...(envs && { envs }) }));
          expect([await said({ WORD: 'once' }), await said()], language).toEqual(['once\n', 'always\n']);
        }
      } finally {
        await plain.kill();
      }
    });

    it('has the environment of the sandbox, and of one run alone', async () => {
      const both = "import os\nf\"{os.environ.get('OF_SANDBOX')} {os.environ.get('OF_RUN')}\"";
      expect((await sandbox.runCode(both, { envs: { OF_RUN: 'once' } })).text).toBe('everywhere once');
      expect((await sandbox.runCode(both)).text).toBe('everywhere None');
      expect(
        printed(
          await sandbox.runCode('echo "$OF_SANDBOX $OF_RUN"', {
            language: 'bash',
            envs: { OF_RUN: 'it\'s "once"' },
          }),
        ),
      ).toBe('everywhere it\'s "once"\n');
      expect(printed(await sandbox.runCode('echo "$OF_SANDBOX $OF_RUN"', { language: 'bash' }))).toBe(
        'everywhere \n',
      );
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

    it('is what other templates are built from, which bring what they need', async () => {
      // Nobody has used the interpreter in this project before.
      const access = platform().stranger;
      const folder = mkdtempSync(join(tmpdir(), 'cay-site-'));
      try {
        mkdirSync(join(folder, 'site'));
        writeFileSync(join(folder, 'site', 'brought.py'), 'word = "brought"\n');
        const site = (await sandbox.commands.run('python3 -m site --user-site')).stdout.trim();
        const template = Template({ fileContextPath: folder })
          .fromTemplate('code-interpreter-v1')
          .copy('site', site)
          .setEnvs({ OF_TEMPLATE: 'yes' });
        await Template.build(template, 'with-packages', access);
        const child = await Sandbox.create('with-packages', access);
        try {
          expect(
            (await child.runCode('import brought, os\nbrought.word + os.environ["OF_TEMPLATE"]')).text,
          ).toBe('broughtyes');
        } finally {
          await child.kill();
        }
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    });

    it('is one for each project, and refuses keys of other projects', async () => {
      const other = await Sandbox.create(platform().stranger);
      try {
        expect((await other.runCode('1 + 1')).text).toBe('2');
      } finally {
        await other.kill();
      }
      await expect(Sandbox.connect(sandbox.sandboxId, platform().stranger)).rejects.toThrow();
      const closed = await Sandbox.create({ ...platform().access, network: { allowPublicTraffic: false } });
      try {
        expect((await closed.runCode('"mine"')).text).toBe('mine');
        const answer = await fetch(`${platform().url}/execute`, {
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
