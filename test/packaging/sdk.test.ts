/**
 * The SDK as its users get it: packed, installed into an empty project, run on every Node that it promises,
 * type-checked with `--strict`, and bundled for a browser.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildSdk } from '../../scripts/build-sdk.ts';
import { ROOT } from '../support/markdown.ts';
import { memoryServer, type MemoryServer } from '../support/memory-server.ts';

const run = promisify(execFile);
const NPM = ['--no-audit', '--no-fund', '--no-progress', '--loglevel=error'];

/** Another Node, kept in the repository's cache between runs. */
async function nodeOf(major: number): Promise<string> {
  if (Number(process.versions.node.split('.')[0]) === major) return process.execPath;
  const prefix = join(ROOT, '.cache', `node-${major}`);
  const name = `node-linux-${process.arch}`;
  const node = join(prefix, 'node_modules', name, 'bin/node');
  if (!existsSync(node)) {
    await mkdir(prefix, { recursive: true });
    await run('npm', ['install', ...NPM, '--prefix', prefix, `${name}@${major}`]);
  }
  return node;
}

const PROGRAM = `
import { Sandbox, CayError } from '@cay/sdk';
import { downloadDir, uploadDir } from '@cay/sdk/node';
import { readFileSync } from 'node:fs';
const sandbox = await Sandbox.create({ name: 'packed-' + process.versions.node.replaceAll('.', '-') });
await sandbox.files.write('data.txt', 'forty-two');
const { stdout, exitCode } = await sandbox.exec(['cat', '/home/user/data.txt']);
const sent = await uploadDir(sandbox.files, process.argv[2], 'project', { filter: (path) => path !== 'left-out' });
await downloadDir(sandbox.files, 'project', process.argv[3]);
const missing = await sandbox.files.read('/none').catch((error) => error instanceof CayError && error.code);
await sandbox.kill();
console.log(JSON.stringify({ stdout, exitCode, sent: sent.entries, back: readFileSync(process.argv[3] + '/sub/a.txt', 'utf8'), missing }));
`;

const TYPED = `
import { Sandbox, type ExecResult, type LogsOptions, type WaitOptions } from '@cay/sdk';
import { connect } from '@cay/sdk/client';
import { SandboxSpecSchema } from '@cay/sdk/protocol';
import { uploadDir } from '@cay/sdk/node';
const sandbox: Sandbox = await Sandbox.create({ limits: { memoryBytes: 1 << 28 } });
const result: ExecResult = await sandbox.exec('true');
const code: number | null = result.exitCode;
// @ts-expect-error: there is no such option
await sandbox.exec('true', { cwd: '/' });
export const all: [number | null, LogsOptions, WaitOptions] = [code, {}, {}];
export { connect, SandboxSpecSchema, uploadDir };
`;

describe('the packed SDK', () => {
  let project: string;
  let server: MemoryServer;

  beforeAll(async () => {
    project = await mkdtemp(join(tmpdir(), 'cay-sdk-'));
    const { stdout } = await run('npm', ['pack', '--silent', '--pack-destination', project, buildSdk()]);
    await writeFile(join(project, 'package.json'), '{ "type": "module" }\n');
    await run('npm', ['install', ...NPM, `./${stdout.trim()}`], { cwd: project });
    await writeFile(join(project, 'main.mjs'), PROGRAM);
    await mkdir(join(project, 'source/sub'), { recursive: true });
    await writeFile(join(project, 'source/sub/a.txt'), 'from here');
    await writeFile(join(project, 'source/left-out'), 'not this');
    server = await memoryServer();
  }, 180_000);

  afterAll(async () => {
    await server?.[Symbol.asyncDispose]();
    await rm(project, { recursive: true, force: true });
  });

  it.each([20, 22, 24])(
    'works on Node %i',
    async (major) => {
      const node = await nodeOf(major);
      const { stdout: version } = await run(node, ['--version']);
      expect(version).toMatch(new RegExp(`^v${major}\\.`));
      const { stdout, stderr } = await run(node, ['main.mjs', 'source', `back-${major}`], {
        cwd: project,
        env: { PATH: process.env['PATH'], CAY_URL: server.url, CAY_API_KEY: server.apiKey },
      });
      expect(stderr).toBe('');
      expect(JSON.parse(stdout)).toEqual({
        stdout: 'forty-two',
        exitCode: 0,
        sent: expect.any(Number),
        back: 'from here',
        missing: 'not_found',
      });
      expect(existsSync(join(project, `back-${major}/left-out`))).toBe(false);
    },
    180_000,
  );

  it('type-checks in a strict project, its own declarations included', async () => {
    await writeFile(join(project, 'typed.ts'), TYPED);
    const options = [
      '--strict',
      '--noEmit',
      '--module',
      'nodenext',
      '--target',
      'es2022',
      '--skipLibCheck',
      'false',
    ];
    const types = ['--typeRoots', join(ROOT, 'node_modules/@types'), '--types', 'node'];
    const { stdout } = await run(join(ROOT, 'node_modules/.bin/tsc'), [...options, ...types, 'typed.ts'], {
      cwd: project,
    }).catch((error: { stdout: string }) => error);
    expect(stdout).toBe('');
  }, 60_000);

  it('is bundled for a browser, without anything of Node and without the schemas', async () => {
    await writeFile(join(project, 'page.js'), "export { Sandbox } from '@cay/sdk/client';\n");
    const options = ['--platform', 'browser', '--format', 'esm', '--file', 'bundle.js'];
    await run(join(ROOT, 'node_modules/.bin/rolldown'), ['page.js', ...options], { cwd: project });
    const bundle = await readFile(join(project, 'bundle.js'), 'utf8');
    expect(bundle).toContain('class Sandbox');
    expect(bundle).not.toMatch(/from ["']node:/);
    // Zod alone is ten times as large as the client, and takes most of the start of a verb.
    expect(bundle).not.toContain('ZodError');
  }, 60_000);
});
