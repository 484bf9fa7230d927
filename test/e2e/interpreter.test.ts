/** Code in contexts of a sandbox, through our SDK, on real runtimes. */
import { Sandbox } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openE2bPlatform, type E2bPlatform } from '../e2b/e2b-platform.ts';
import { whyNoLocal } from '../support/local-platform.ts';

const why = whyNoLocal();
if (why) console.warn(`The code interpreter is not tested: ${why}`);

describe.skipIf(why).for(['runc', 'runsc'] as const)('the code interpreter on %s', (runtime) => {
  let platform: E2bPlatform;
  let sandbox: Sandbox;
  const access = () => ({ url: platform.url, apiKey: platform.access.apiKey });
  beforeAll(async () => {
    platform = await openE2bPlatform(runtime);
    sandbox = await Sandbox.create({ env: { OF_SANDBOX: 'everywhere' } }, access());
  });
  afterAll(() => platform[Symbol.asyncDispose]());

  it('keeps variables, and streams what comes', { timeout: 60_000 }, async () => {
    const told: string[] = [];
    const first = await sandbox.runCode(
      'import sys\nx = 6\nprint("out")\nprint("err", file=sys.stderr)\nx * 7',
      {
        onStdout: (text) => told.push(`stdout ${text}`),
        onStderr: (text) => told.push(`stderr ${text}`),
        onResult: ({ text }) => told.push(`result ${text}`),
      },
    );
    expect(first).toMatchObject({
      text: '42',
      stdout: 'out\n',
      stderr: 'err\n',
      error: undefined,
      outcome: 'completed',
      count: 1,
    });
    expect(told.at(-1)).toBe('result 42');
    expect(await sandbox.runCode('x += 1\nx')).toMatchObject({ text: '7', count: 2 });
    expect(await sandbox.runCode('import os\nos.environ["OF_SANDBOX"]')).toMatchObject({
      text: 'everywhere',
    });
    expect(await sandbox.runCode('1/0')).toMatchObject({
      outcome: 'failed',
      error: { name: 'ZeroDivisionError', value: 'division by zero' },
    });
  });

  it('tells what was printed before a result before it', async () => {
    const code = 'import sys\nfor i in range(20):\n  print(i, file=sys.stderr)\n  display(i)';
    for (let round = 0; round < 10; round += 1) {
      const told: string[] = [];
      for await (const event of sandbox.interpreter.stream(code))
        if (event.type === 'stderr') told.push(...event.text.trim().split('\n'));
        else if (event.type === 'result') told.push(`= ${event.text}`);
      expect(told).toEqual(Array.from({ length: 20 }, (_, i) => [`${i}`, `= ${i}`]).flat());
    }
  });

  it('runs four languages, each with results of its own', { timeout: 60_000 }, async () => {
    expect(await sandbox.runCode('\n    y = [1, 2]\n    y')).toMatchObject({
      results: [{ main: true, text: '[1, 2]', json: [1, 2] }],
    });
    const js = (code: string) => sandbox.runCode(code, { language: 'javascript' });
    expect(await js("import { basename } from 'node:path'\nbasename('/a/b')")).toMatchObject({ text: 'b' });
    expect(await js("const kept = await Promise.resolve('a'); kept")).toMatchObject({ text: 'a' });
    expect(await js('({ kept })')).toMatchObject({
      results: [{ text: "{ kept: 'a' }", json: { kept: 'a' } }],
    });
    const ts = (code: string) => sandbox.runCode(code, { language: 'typescript' });
    expect(await ts('enum Size { Small = 3 }\nlet size: Size = Size.Small\nsize as number')).toMatchObject({
      text: '3',
    });
    expect(await ts('size + 1')).toMatchObject({ text: '4' });
    const bash = (code: string) => sandbox.runCode(code, { language: 'bash' });
    expect(await bash('WORD=kept; cd /tmp')).toMatchObject({ outcome: 'completed' });
    expect(await bash('echo "$WORD $PWD"')).toMatchObject({ stdout: 'kept /tmp\n' });
    expect(await bash('false')).toMatchObject({
      outcome: 'failed',
      error: { name: 'ExitStatus', value: '1' },
    });
  });

  it('has contexts that are apart, and can be interrupted, restarted and removed', async () => {
    const { interpreter } = sandbox;
    const context = await interpreter.createContext({ cwd: '/tmp' });
    expect(context).toMatchObject({ language: 'python', cwd: '/tmp' });
    expect(await interpreter.contexts()).toContainEqual(context);
    await sandbox.runCode('own = 5', { context });
    expect(await sandbox.runCode('own')).toMatchObject({ error: { name: 'NameError' } });
    expect(await interpreter.interrupt(context)).toBe(false);

    const { promise: begun, resolve } = Promise.withResolvers<void>();
    const slow = sandbox.runCode('print("begun")\nimport time\ntime.sleep(60)', {
      context,
      onStdout: () => resolve(),
    });
    await begun;
    expect(await interpreter.interrupt(context)).toBe(true);
    expect(await slow).toMatchObject({ outcome: 'interrupted', error: { name: 'KeyboardInterrupt' } });
    expect(await sandbox.runCode('while True: pass', { context, timeoutMs: 300 })).toMatchObject({
      outcome: 'timed_out',
    });
    expect(await sandbox.runCode('own', { context })).toMatchObject({ text: '5' });
    expect(await sandbox.runCode('import os\nos.kill(os.getpid(), 9)', { context })).toMatchObject({
      outcome: 'died',
    });
    await interpreter.restart(context);
    expect(await sandbox.runCode('own', { context })).toMatchObject({ error: { name: 'NameError' } });
    await interpreter.remove(context);
    await expect(sandbox.runCode('1', { context })).rejects.toMatchObject({ code: 'not_found' });
    await expect(interpreter.createContext({ cwd: '/no/such' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(interpreter.createContext({ cwd: '/root' })).rejects.toMatchObject({
      code: 'permission_denied',
    });
  });

  it('goes on over a restart of the server', { timeout: 60_000 }, async () => {
    await sandbox.runCode('survives = "yes"');
    await platform.restart();
    expect(await sandbox.runCode('survives')).toMatchObject({ text: 'yes' });
  });

  it.runIf(runtime === 'runsc')('goes on in forks and snapshots', { timeout: 60_000 }, async () => {
    const context = await sandbox.interpreter.createContext();
    await sandbox.runCode('moment = 1', { context });
    const [fork] = await sandbox.fork(1, { memory: true });
    await sandbox.runCode('moment = 2', { context });
    expect(await fork!.runCode('moment += 10\nmoment', { context })).toMatchObject({ text: '11' });
    expect(await sandbox.runCode('moment', { context })).toMatchObject({ text: '2' });
    const snapshot = await sandbox.snapshot({ memory: true });
    const later = await Sandbox.create({ snapshot: snapshot.id, memory: true }, access());
    expect(await later.runCode('moment', { context })).toMatchObject({ text: '2' });
    await Promise.all([fork!.kill(), later.kill()]);
  });

  it('restarts after the sandbox was stopped', { timeout: 60_000 }, async () => {
    await sandbox.stop({ graceMs: 0 });
    await expect(sandbox.runCode('1')).rejects.toMatchObject({ code: 'failed_precondition' });
    await sandbox.start();
    expect(await sandbox.runCode('"anew"')).toMatchObject({ text: 'anew', count: 1 });
  });

  it('is started by several callers once', { timeout: 60_000 }, async () => {
    const other = await Sandbox.create({}, access());
    const runs = await Promise.all(
      Array.from({ length: 4 }, (_, i) =>
        other.runCode(`try: shared.append(${i})\nexcept NameError: shared = [${i}]`),
      ),
    );
    expect(runs.map(({ outcome }) => outcome)).toEqual(Array.from({ length: 4 }, () => 'completed'));
    expect(await other.runCode('len(shared)')).toMatchObject({ text: '4' });
    expect((await other.commands()).filter(({ id }) => id.startsWith('interpreter.'))).toHaveLength(1);
    await other.kill();
  });
});
