/**
 * Every verb with values that cannot be: each failure says what to do, in words, and exits with a documented
 * code. In this process, on the memory backend, because it is hundreds of calls.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ERRORS } from '@cay/sdk/protocol';
import { memoryBackend } from '../../server/src/backends/memory/memory.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { loadProgram, runCli } from '../../server/src/cli/program.ts';
import type { Composition } from '../../server/src/cli/verb.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';

type Command = Awaited<ReturnType<typeof loadProgram>>;

/** These act on this machine, or serve until they are ended. The verbs below talk to a server alone. */
const ON_THIS_MACHINE = [
  'bench',
  'cert',
  'completion',
  'doctor',
  'down',
  'enforce',
  'exec-server',
  'help',
  'install',
  'kubernetes',
  'mcp',
  'up',
];
/** `cay status` where no server runs. */
const NOT_RUNNING = 3;
const DOCUMENTED = new Set([
  ...Object.values(ERRORS).map(({ exitCode }) => exitCode),
  0,
  1,
  NOT_RUNNING,
  125,
  126,
  127,
]);

const composition = { clusterBackends: ['kubernetes-job'] } as unknown as Composition;
const program = await loadProgram(composition);

interface Leaf {
  path: string[];
  command: Command;
}

function leavesOf(command: Command, path: string[] = []): Leaf[] {
  return command.commands
    .filter((one) => path.length > 0 || !ON_THIS_MACHINE.includes(one.name()))
    .filter((one) => one.name() !== 'help')
    .flatMap((one) => {
      const below = leavesOf(one, [...path, one.name()]);
      return below.length > 0 ? below : [{ path: [...path, one.name()], command: one }];
    });
}

const leaves = leavesOf(program);

/** What keeps a verb from going on for ever, or from reading this process's standard input. */
const WITH: Record<string, string[]> = { 'secret set': ['--from-file', '/nope'] };
/**
 * What is asked for wrongly: an unknown flag, nothing at all, names of nothing, and each flag with nonsense.
 */
function attempts({ path, command }: Leaf): string[][] {
  const required = command.registeredArguments.filter((argument) => argument.required);
  const names = [...required.map(() => 'nope'), ...(WITH[path.join(' ')] ?? [])];
  const flags = command.options.filter((option) => option.required && option.long !== '--help');
  return [
    [...path, '--bogus'],
    ...(required.length > 0 ? [path] : []),
    [...path, ...names],
    ...flags.map(({ long }) => [...path, long!, '@@', ...names]),
  ];
}

let directory: string;
let server: RunningServer;
const before = { ...process.env };
const cwd = process.cwd();
beforeAll(async () => {
  directory = await mkdtemp('/tmp/cay-every-error-');
  process.chdir(directory);
  server = await serve({
    backend: memoryBackend(),
    dataDir: join(directory, 'control'),
    port: 0,
    log: serverLog('silent'),
  });
  Object.assign(process.env, { CAY_URL: server.url, CAY_API_KEY: server.adminKey, NO_COLOR: '1' });
});
afterAll(async () => {
  process.chdir(cwd);
  for (const name of ['CAY_URL', 'CAY_API_KEY', 'NO_COLOR'])
    if (before[name] === undefined) delete process.env[name];
    else process.env[name] = before[name];
  await server.close();
  await rm(directory, { recursive: true, force: true });
});

async function run(args: string[]): Promise<{ code: number; stderr: string }> {
  let stderr = '';
  const written = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    stderr += String(text);
    return true;
  });
  const printed = vi.spyOn(process.stdout, 'write').mockImplementation(() => true);
  try {
    process.exitCode = undefined;
    const code = await runCli(composition, args);
    return { code, stderr };
  } finally {
    process.exitCode = undefined;
    written.mockRestore();
    printed.mockRestore();
  }
}

describe('every failure', () => {
  it.each(leaves.map((leaf) => ({ title: leaf.path.join(' '), leaf })))(
    'of "cay $title" says what to do',
    async ({ leaf }) => {
      for (const args of attempts(leaf)) {
        const { code, stderr } = await run(args);
        const said = `cay ${args.join(' ')}\n${stderr}`;
        expect(DOCUMENTED, said).toContain(code);
        if (code === 0 || code === NOT_RUNNING) continue;
        expect(stderr, said).toMatch(/^error: [A-Z0-9"-]/m);
        expect(stderr, said).toMatch(/^hint: ./m);
        expect(stderr, said).not.toMatch(
          /\bE[A-Z]{4,}\b|os error|\n {4}at |undefined|\[object|in the (body|query|path)\b|Invalid input|Unrecognized key/,
        );
        expect(stderr, said).not.toContain('fault of Cay');
      }
    },
  );
});
