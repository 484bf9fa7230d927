/** Agent tools against real sandboxes, over HTTP, with a server that is killed. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import fc from 'fast-check';
import {
  describeTools,
  Sandbox,
  TOOL_INPUTS,
  TOOL_NAMES,
  type CayError,
  type ToolContent,
  type ToolEvent,
  type ToolResult,
} from '@cay/sdk';
import { openCay, type Cay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { killServing, startServing, type Serving } from '../support/serving.ts';

const RUNTIME = process.env['CAY_TOOLS_RUNTIME'] ?? 'runc';

describe.skipIf(whyNoLocal() !== undefined)(`agent tools on ${RUNTIME}`, () => {
  let cay: Cay;
  let env: NodeJS.ProcessEnv;
  let server: Serving;
  let box: Sandbox;

  beforeAll(async () => {
    cay = await openCay({ CAY_RUNTIME: RUNTIME });
    env = cay.env;
    server = await startServing(env);
  });
  afterAll(async () => {
    await killServing(server, 'SIGTERM');
    await cay[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    box = await Sandbox.create({}, { url: server.url, apiKey: server.key });
  });
  afterEach(() => box.kill());

  /** The same sandbox after a restart of the server. */
  async function again(fault?: string): Promise<void> {
    await killServing(server);
    server = await startServing({ ...env, ...(fault !== undefined && { CAY_FAULT_POINTS: fault }) });
    box = await Sandbox.connect(box.id, { url: server.url, apiKey: server.key });
  }

  it('edits, reads and finds files without a process', async () => {
    await box.tools.write({ file_path: 'src/a.ts', content: 'const one = 1;\nconst two = 2;\n' });
    const edited = await box.tools.edit({
      file_path: 'src/a.ts',
      old_string: 'two = 2',
      new_string: 'two = 22',
    });
    expect(edited).toMatchObject({ tier: 1, isError: false, structured: { replacements: 1, lines: [2] } });
    expect(textOf(await box.tools.read({ file_path: 'src/a.ts' }))).toBe(
      '     1\tconst one = 1;\n     2\tconst two = 22;\n',
    );
    const found = await box.tools.grep({ pattern: 'two', output_mode: 'content' });
    expect(textOf(found)).toMatch(/src\/a\.ts:2:const two = 22;\n$/);
    expect(textOf(await box.tools.glob({ pattern: '**/*.ts' }))).toMatch(/src\/a\.ts\n$/);
    expect(textOf(await box.tools.list({}))).toContain('src/\n');
    const patch =
      '*** Begin Patch\n*** Update File: src/a.ts\n@@\n-const one = 1;\n+const one = 11;\n*** End Patch';
    expect(textOf(await box.tools.applyPatch({ patch }))).toContain('M src/a.ts');
    const edits = [
      { old_string: '11', new_string: '1' },
      { old_string: '22', new_string: '2' },
    ];
    await box.tools.multiEdit({ file_path: 'src/a.ts', edits });
    expect(await box.files.readText('src/a.ts')).toBe('const one = 1;\nconst two = 2;\n');
    expect((await box.exec('stat -c %U src/a.ts')).stdout.trim()).toBe('user');
  });

  it('tells what it cannot do as a result, and refuses what is no call', async () => {
    await box.files.write('f', 'x\ny\nx\n');
    const twice = await box.tools.edit({ file_path: 'f', old_string: 'x', new_string: 'z' });
    expect(twice).toMatchObject({ isError: true, error: { details: { lines: [1, 3] } } });
    expect(textOf(twice)).toContain('occurs 2 times, on lines 1, 3');
    expect(await box.tools.read({ file_path: 'none' })).toMatchObject({
      isError: true,
      error: { code: 'not_found' },
    });
    await expect(box.tool('read', {})).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(box.tool('reed', {})).rejects.toMatchObject({
      code: 'not_found',
      hint: 'did you mean "read"?',
    });
    await expect(box.tool('read', { file_path: 'f', extra: 1 })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('returns images as images, and binary files not at all', async () => {
    const png = Buffer.from(
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
      'base64',
    );
    await box.files.write('dot.png', png);
    const { content } = await box.tools.read({ file_path: 'dot.png' });
    expect(content).toEqual([{ type: 'image', data: png.toString('base64'), mimeType: 'image/png' }]);
    const binary = await box.tools.read({ file_path: '/bin/true' });
    expect(textOf(binary)).toContain('is a binary file');
  });

  it('runs commands, keeps head and tail, and saves the whole', async () => {
    const small = await box.tools.bash({ command: 'echo out; echo err >&2; exit 3' });
    expect(small).toMatchObject({ tier: 2, exitCode: 3, isError: true });
    expect(textOf(small)).toMatch(/out[\s\S]*err|err[\s\S]*out/);
    const large = await box.tools.bash({ command: 'seq 1 200000' });
    expect(large.exitCode).toBe(0);
    const text = textOf(large);
    expect(text.startsWith('1\n2\n3\n')).toBe(true);
    expect(text.endsWith('199999\n200000')).toBe(true);
    expect(text.length).toBeLessThan(31_000);
    const { savedTo, omittedBytes } = large.truncated!;
    expect(text).toContain(`${omittedBytes} bytes omitted; the whole output is in ${savedTo}`);
    const whole = await box.exec(`tail -1 ${savedTo}; wc -l < ${savedTo}`);
    expect(whole.stdout).toBe('200000\n200000\n');
    const late = await box.tools.bash({ command: 'sleep 30', timeout: 300 });
    expect(late).toMatchObject({ isError: true, structured: { end: { kind: 'timed_out' } } });
  });

  it('tells progress while a command runs', async () => {
    const events: ToolEvent[] = [];
    for await (const event of box.tools.stream('bash', {
      command: 'for i in 1 2 3 4; do echo line $i; sleep 0.3; done',
    }))
      events.push(event);
    expect(events.filter(({ type }) => type === 'progress').length).toBeGreaterThan(0);
    expect(events.at(-1)).toMatchObject({ type: 'result', result: { exitCode: 0 } });
  });

  it('talks to commands in the background', async () => {
    const started = await box.tools.bash({ command: 'read x; echo got $x; cat', run_in_background: true });
    const bash_id = String(started.structured['bash_id']);
    expect(started.exitCode).toBeNull();
    await box.tools.bashInput({ bash_id, data: 'hello\n' });
    const first = await box.tools.bashOutput({ bash_id, wait_ms: 5000 });
    expect(textOf(first)).toBe('got hello\n[still running]');
    await box.tools.bashInput({ bash_id, data: 'more', eof: true });
    const offset = Number(first.structured['next_offset']);
    let last = await box.tools.bashOutput({ bash_id, offset, wait_ms: 5000 });
    for (let n = 0; n < 20 && last.exitCode !== 0; n++)
      last = await box.tools.bashOutput({ bash_id, offset, wait_ms: 500 });
    expect(textOf(last)).toBe('more\n[ended with exit code 0]');
    const sleeper = await box.tools.bash({ command: 'sleep 100', run_in_background: true });
    const id = String(sleeper.structured['bash_id']);
    await box.tools.bashKill({ bash_id: id });
    await expect.poll(async () => (await box.tools.bashOutput({ bash_id: id })).exitCode).toBe(137);
  });

  it('works with git', async () => {
    await box.exec('git init -q -b main . && git config user.email a@b.c && git config user.name n');
    await box.files.write('f', 'one\n');
    expect(await box.tool('git_add', { paths: ['f'] })).toMatchObject({ tier: 2, exitCode: 0 });
    expect((await box.tool('git_commit', { message: '-first' })).exitCode).toBe(0);
    await box.files.write('f', 'two\n');
    expect(textOf(await box.tool('git_diff', {}))).toContain('+two');
    expect(textOf(await box.tool('git_status', {}))).toContain(' M f');
    expect(textOf(await box.tool('git_log', {}))).toContain('-first');
    expect((await box.tool('git_checkout', { branch: 'side', create: true })).exitCode).toBe(0);
    await expect(box.tool('git_show', { revision: '--output=/tmp/x' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('runs one toolCallId once, for two callers at once', async () => {
    const toolCallId = randomUUID();
    const call = () => box.tools.bash({ command: 'echo x >> runs; sleep 0.5; wc -l < runs' }, { toolCallId });
    const results = await Promise.all([call(), call(), call()]);
    expect(results.map(textOf)).toEqual(['1', '1', '1']);
    expect(results.filter(({ repeated }) => !repeated)).toHaveLength(1);
    expect(textOf(await call())).toBe('1');
    await expect(box.tools.bash({ command: 'other' }, { toolCallId })).rejects.toMatchObject({
      code: 'conflict',
    });
  });

  it('gives the answer again after a restart, and never starts a command twice', async () => {
    const toolCallId = randomUUID();
    const write = randomUUID();
    await box.tools.write({ file_path: 'w', content: '1' }, { toolCallId: write });
    const command = 'echo x >> runs; sleep 3; wc -l < runs; echo done';
    const cut = box.tools.bash({ command }, { toolCallId }).catch((error: unknown) => error);
    await expect.poll(() => box.files.readText('runs').catch(() => '')).toBe('x\n');
    await again();
    await cut;
    expect(textOf(await box.tools.bash({ command }, { toolCallId }))).toBe('1\ndone');
    await box.files.write('w', '2');
    const repeated = await box.tools.write({ file_path: 'w', content: '1' }, { toolCallId: write });
    expect(repeated).toMatchObject({ repeated: true, isError: false });
    expect(await box.files.readText('w')).toBe('2');
  });

  it('says that it does not know what a killed server has done, rather than do it again', async () => {
    await again('{"control.tool.done":"kill"}');
    const toolCallId = randomUUID();
    const edit = () => box.tools.edit({ file_path: 'f', old_string: 'a', new_string: 'aa' }, { toolCallId });
    await box.files.write('f', 'a');
    await edit().catch(() => {});
    await again();
    expect(await edit()).toMatchObject({
      isError: true,
      error: { details: { reason: 'outcome_unknown' } },
    });
    expect(await box.files.readText('f')).toBe('aa');
  });

  it('is waited for by a turn, and refuses a rollback unless that is forced', async () => {
    const before = await box.turn();
    const running = box.tools.bash({ command: 'sleep 2; echo late > f' });
    await expect.poll(async () => (await box.commands()).length).toBeGreaterThan(0);
    await expect(box.rollback(before.turn!)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { reason: 'tools_in_flight' },
    });
    const turn = await box.turn();
    expect(turn.quiet).toBe(true);
    expect((await running).exitCode).toBe(0);
    const forced = box.tools.bash({ command: 'sleep 30' }).catch(() => undefined);
    await expect.poll(async () => (await box.commands()).some(({ end }) => !end)).toBe(true);
    await box.rollback(before.turn!, { force: true });
    await forced;
    await expect(box.files.readText('f')).rejects.toMatchObject({ code: 'not_found' });
  });

  it('takes a snapshot of a call that asks for one', async () => {
    const { snapshot } = await box.tools.write({ file_path: 'kept', content: 'k' }, { snapshot: true });
    await box.exec('rm kept');
    await box.rollback(snapshot!);
    expect(await box.files.readText('kept')).toBe('k');
  });

  it('wakes a paused sandbox', async () => {
    await box.pause();
    expect(textOf(await box.tools.bash({ command: 'echo awake' }))).toBe('awake');
    await box.pause();
    expect((await box.tools.list({ path: '/' })).isError).toBe(false);
  });

  it('speaks codex', async () => {
    const codex = { dialect: 'codex' } as const;
    const short = await box.tool('exec_command', { cmd: 'echo hi' }, codex);
    expect(textOf(short)).toMatch(/Process exited with code 0\n[\s\S]*Output:\nhi\n$/);
    const long = await box.tool(
      'exec_command',
      { cmd: 'echo begun; read x; echo got $x', yield_time_ms: 500 },
      codex,
    );
    const session_id = Number(long.structured['session_id']);
    expect(textOf(long)).toContain(`Process running with session ID ${session_id}`);
    const rest = await box.tool('write_stdin', { session_id, chars: 'it\n', yield_time_ms: 3000 }, codex);
    expect(textOf(rest)).toMatch(/Output:\ngot it\n$/);
    const input = '*** Begin Patch\n*** Add File: n\n+n\n*** End Patch';
    expect((await box.tool('apply_patch', { input }, codex)).isError).toBe(false);
  });

  it('speaks anthropic, with a directory that stays', async () => {
    const anthropic = { dialect: 'anthropic' } as const;
    await box.tool('bash', { command: 'mkdir -p d && cd d && export WORD=kept' }, anthropic);
    expect(textOf(await box.tool('bash', { command: 'pwd; echo $WORD' }, anthropic))).toMatch(/\/d\nkept$/);
    expect((await box.tool('bash', { command: 'exit 4' }, anthropic)).exitCode).toBe(4);
    await box.tool('bash', { restart: true }, anthropic);
    expect(textOf(await box.tool('bash', { command: 'pwd; echo [$WORD]' }, anthropic))).toMatch(
      /user\n\[\]$/,
    );
    const name = 'str_replace_based_edit_tool';
    const edit = (input: Record<string, unknown>) => box.tool(name, { path: 'e', ...input }, anthropic);
    await edit({ command: 'create', file_text: 'a\nc\n' });
    await edit({ command: 'insert', insert_line: 1, insert_text: 'b' });
    await edit({ command: 'str_replace', old_str: 'c', new_str: 'C' });
    expect(textOf(await edit({ command: 'view', view_range: [2, 3] }))).toBe('     2\tb\n     3\tC\n');
    expect(textOf(await edit({ command: 'view', path: '.' }))).toContain('e\n');
  });

  it('answers whatever a model sends, with a result or a refusal', async () => {
    const hostile = [
      null,
      -1,
      1e308,
      true,
      '',
      'x'.repeat(5000),
      '\0',
      '../../../../etc/passwd',
      '/proc/self/mem',
      '/dev/zero',
      '(((',
      '[',
      '**/**/**',
      '\ud800',
      [],
      {},
      ['-rf', '/'],
    ];
    const values = fc.oneof(fc.constantFrom(...hostile), fc.string(), fc.integer(), fc.boolean());
    const codes = new Set<string>();
    for (const name of TOOL_NAMES) {
      const fields = Object.keys(TOOL_INPUTS[name].shape);
      const known = fields.filter((field) => !['timeout', 'wait_ms', 'command'].includes(field));
      const inputs = fc.dictionary(fc.constantFrom(...known, 'extra'), values, { maxKeys: 6 });
      await fc.assert(
        fc.asyncProperty(inputs, async (input) => {
          const result = await box
            .tool(name, input as Record<string, unknown>, { timeoutMs: 5000 })
            .catch((error: CayError) => error);
          if (!('content' in result)) codes.add(result.code);
        }),
        { numRuns: 8 },
      );
    }
    expect([...codes].filter((code) => !['invalid_argument', 'not_found'].includes(code))).toEqual([]);
    expect((await box.tools.bash({ command: 'echo alive' })).exitCode).toBe(0);
  }, 60_000);

  it('describes its tools as model APIs take them', async () => {
    const connection = { url: server.url, apiKey: server.key };
    const shapes = {
      anthropic: 'input_schema',
      openai: 'parameters',
      mcp: 'inputSchema',
      'ai-sdk': 'inputSchema',
    } as const;
    for (const [format, key] of Object.entries(shapes)) {
      const { tools } = await describeTools({ ...connection, format: format as keyof typeof shapes });
      const grep = tools.find(({ name }) => name === 'grep')!;
      expect(JSON.stringify(grep[key])).toContain('"output_mode"');
    }
    const { tools } = await describeTools({ ...connection, dialect: 'anthropic' });
    expect(tools[0]).toEqual({ type: 'bash_20250124', name: 'bash' });
  });
});

function textOf({ content }: ToolResult): string {
  const text = (block: ToolContent) => (block.type === 'text' ? block.text : '');
  return content.map(text).join('');
}
