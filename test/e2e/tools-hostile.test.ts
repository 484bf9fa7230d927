/**
 * Agent tools where the sandbox itself is against them: odd files, and a program that swaps what they look
 * at.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox, TOOL_INPUTS, TOOL_NAMES, type CayError, type ToolDialect } from '@cay/sdk';
import { openCay, type Cay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { killServing, startServing, type Serving } from '../support/serving.ts';

const RUNTIME = process.env['CAY_TOOLS_RUNTIME'] ?? 'runc';
const MOST_ANSWER = 8 * 1024 * 1024;
const PER_CALL_MS = 10_000;
const SECRET = 'of-root-alone';

/** Files of every kind that a program can make, below `odd`. */
const ODD_FILES = `
import os, socket
os.makedirs('odd/deep', exist_ok=True); os.chdir('odd')
open('line', 'wb').write(b'a' * (32 << 20))
with open('sparse', 'wb') as f: f.truncate(1 << 30)
open('binary', 'wb').write(bytes(range(256)) * 64)
open('latin', 'wb').write(b'caf\\xe9 one\\nna\\xefve\\n')
open('crlf', 'wb').write(b'one\\r\\ntwo\\n')
open('empty', 'wb').close()
open('closed', 'w').write('one'); os.chmod('closed', 0)
open(b'name-\\xff\\xfe', 'w').write('one')
open('new\\nline', 'w').write('one')
os.mkfifo('pipe')
socket.socket(socket.AF_UNIX).bind('socket')
os.symlink('loop', 'loop'); os.symlink('nowhere', 'dangling'); os.symlink('.', 'self'); os.symlink('/dev/zero', 'zero')
os.symlink('/proc/self/mem', 'mem'); os.symlink('/root', 'root')
path = 'deep'
for i in range(60): path += '/d' * 20; os.makedirs(path, exist_ok=True)
`;
const ODD = [
  ...['line', 'sparse', 'binary', 'latin', 'crlf', 'empty', 'closed', 'pipe', 'socket', 'loop', 'dangling'],
  ...['zero', 'mem', 'root', 'self', 'self/self/self/latin', 'deep', 'new\nline', 'root/secret', 'none/none'],
].map((name) => `odd/${name}`);

type JsonSchema = Pick<ReturnType<(typeof TOOL_INPUTS)['read']['toJSONSchema']>, 'properties' | 'required'>;

/**
 * Another sandbox path for every path that the schema of a tool has, and something of the right kind for the
 * rest.
 */
function inputsFor({ properties = {}, required = [] }: JsonSchema, path: string): Record<string, unknown> {
  const words: Record<string, unknown> = {
    command: 'true',
    patch: `*** Begin Patch\n*** Update File: ${path}\n@@\n-one\n+two\n*** End Patch`,
    pattern: 'one',
    content: 'two',
    old_string: 'one',
    new_string: 'two',
    edits: [{ old_string: 'one', new_string: 'two' }],
    paths: [path],
    bash_id: 'none',
    data: 'x',
    url: `file://${path}`,
    message: 'm',
    limit: 50,
    head_limit: 50,
  };
  const input: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(properties)) {
    if (typeof field === 'boolean') continue;
    if (/path|repo|workdir|directory/.test(name) && field.type === 'string') input[name] = path;
    else if (required.includes(name) || name in words) {
      if (name in words) input[name] = words[name];
      else if (field.enum) input[name] = field.enum[0];
      else input[name] = field.type === 'integer' || field.type === 'number' ? 1 : 'one';
    }
  }
  return input;
}

describe.skipIf(whyNoLocal() !== undefined)(`agent tools against a hostile sandbox on ${RUNTIME}`, () => {
  let cay: Cay;
  let server: Serving;
  let box: Sandbox;
  beforeAll(async () => {
    cay = await openCay({ CAY_RUNTIME: RUNTIME });
    server = await startServing(cay.env);
    box = await Sandbox.create({}, { url: server.url, apiKey: server.key });
    await box.exec(
      `mkdir -p /root/kept && echo ${SECRET} | tee /root/secret /root/kept/secret > /root/kept/one`,
      {
        user: 'root',
      },
    );
    await box.exec('chmod -R go= /root', { user: 'root' });
  });
  afterAll(async () => {
    await killServing(server, 'SIGTERM');
    await cay[Symbol.asyncDispose]();
  });

  /** Calls a tool, and fails if it takes too long, says too much, or tells what is not the user's. */
  async function call(name: string, input: Record<string, unknown>, dialect?: ToolDialect): Promise<string> {
    const began = performance.now();
    const answer = await box
      .tool(name, input, { timeoutMs: PER_CALL_MS / 2, ...(dialect && { dialect }) })
      .catch((error: CayError) => error);
    const text = JSON.stringify(answer);
    const about = `${name} ${JSON.stringify(input).slice(0, 200)}: ${text.slice(0, 300)}`;
    expect(performance.now() - began, about).toBeLessThan(3 * PER_CALL_MS);
    expect(text.length, about).toBeLessThan(MOST_ANSWER);
    expect(text, about).not.toContain(SECRET);
    if (!('content' in answer)) expect(['invalid_argument', 'not_found'], about).toContain(answer.code);
    return text;
  }

  it(
    'answers every tool on every kind of file, in time and within bounds',
    { timeout: 300_000 },
    async () => {
      await box.exec(['python3', '-c', ODD_FILES]);
      const repositories = ['git_clone', 'git_push', 'git_pull'];
      for (const name of TOOL_NAMES) {
        if (name.startsWith('bash') || repositories.includes(name)) continue;
        const schema = TOOL_INPUTS[name].toJSONSchema({ io: 'input' });
        for (const path of ODD) await call(name, inputsFor(schema, path));
      }
      for (const path of ODD) {
        await call(
          'apply_patch',
          { input: inputsFor({ properties: { patch: {} } }, path)['patch'] },
          'codex',
        );
        await call('view_image', { path }, 'codex');
        for (const command of ['view', 'str_replace', 'insert'])
          await call(
            'str_replace_based_edit_tool',
            { command, path, ...(command === 'str_replace' && { old_str: 'one', new_str: 'two' }) },
            'anthropic',
          );
      }
      const lines = (await box.exec('ls -A /root /root/kept', { user: 'root' })).stdout;
      expect(lines.split('\n').filter(Boolean).toSorted()).toEqual(
        expect.arrayContaining(['kept', 'one', 'secret', 'secret']),
      );
      expect((await box.exec('cat /root/secret', { user: 'root' })).stdout.trim()).toBe(SECRET);
      expect(await call('read', { file_path: 'odd/crlf' })).toContain('two');
    },
  );

  it(
    'never leads where the user may not, while a program swaps directories for links',
    { timeout: 120_000 },
    async () => {
      await box.exec(
        'rm -rf race && mkdir -p race/own race/real && echo mine | tee race/real/secret > race/real/one',
      );
      const swap = `
import os, shutil
os.chdir('race'); os.symlink('/root/kept', 'link')
while True:
    for source in ('real', 'link'):
        try:
            os.rename(source, 'd')
            os.rename('d', source)
        except OSError:
            # A tool has made it meanwhile.
            shutil.rmtree('d', ignore_errors=True)
`;
      await using program = await box.spawn(['python3', '-c', swap]);
      const kept = () => box.exec('cd /root/kept && ls -A && cat *', { user: 'root' });
      const before = (await kept()).stdout;
      const seen = new Set<string>();
      for (let round = 0; round < 40; round++) {
        const d = 'race/d';
        const told = await Promise.all([
          call('read', { file_path: `${d}/one` }),
          call('write', { file_path: `${d}/new-${round}`, content: 'x' }),
          call('edit', {
            file_path: `${d}/one`,
            old_string: round % 2 ? 'yours' : 'mine',
            new_string: round % 2 ? 'mine' : 'yours',
          }),
          call('apply_patch', {
            patch: `*** Begin Patch\n*** Add File: ${d}/patched\n+x\n*** Delete File: ${d}/secret\n*** End Patch`,
          }),
          call('grep', { pattern: '.', path: d, output_mode: 'content', no_ignore: true }),
          call('glob', { pattern: '**', path: d }),
          call('list', { path: d, depth: 3 }),
        ]);
        for (const text of told)
          for (const word of ['permission_denied', '"isError":false'])
            if (text.includes(word)) seen.add(word);
      }
      program.kill();
      // Calls met both, or nothing was tried.
      expect([...seen].toSorted()).toEqual(['"isError":false', 'permission_denied']);
      expect((await kept()).stdout).toBe(before);
    },
  );
});
