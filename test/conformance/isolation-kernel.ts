/** What code inside tries against the kernel under it and against what it shares with its neighbours. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Box } from './box.ts';
import { hasProgram, type CaseContext, type Suite } from './suite.ts';

const TRIALS = readFileSync(join(import.meta.dirname, '../support/trials.py'), 'utf8');
/** AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. */
const FAMILIES = [1, 2, 10, 16];
/** A kernel of its own may let a sandbox have these: they are none of the host's. */
const OWN = /^(unshare|clone|keyctl|syslog|sysrq|oom_score_adj)/;
const ENGINE = "the engine's own filter, masks and limits apply";

export function kernelCases(suite: Suite): void {
  suite.inBox(
    'sockets are of four families and pairs of one, and no module is loaded',
    ['isolation', 'processes'],
    async (box, context) => {
      requireOurs(suite, context);
      const before = modules();
      for (const user of ['user', box.strongest]) {
        const { sockets, pairs, ...protocols } = await tried(box, context, user, 'families');
        expect(FAMILIES).toEqual(expect.arrayContaining(sockets as number[]));
        expect(pairs).toEqual([1]);
        expect(allowed(protocols)).toEqual([]);
      }
      expect(modules()).toEqual(before);
    },
  );

  suite.inBox(
    'no process inside makes namespaces, mounts or devices, or reaches into the kernel',
    ['isolation', 'processes'],
    async (box, context) => {
      requireOurs(suite, context);
      for (const user of ['user', box.strongest]) {
        const said = await tried(box, context, user, 'kernel');
        expect(allowed(said).filter((name) => suite.platform.kernel === 'shared' || !OWN.test(name))).toEqual(
          [],
        );
      }
    },
  );

  suite.inBox(
    'no process inside traces PID 1 or writes to its memory',
    ['isolation', 'processes'],
    async (box, context) => {
      const looking = ['environ', 'maps', 'fd'];
      for (const user of ['user', box.strongest]) {
        const said = await tried(box, context, user, 'pid1');
        // gVisor shows these to all users. There is nothing in them that is not known inside.
        expect(allowed(said).filter((name) => !looking.includes(name))).toEqual([]);
        if (suite.platform.kernel === 'shared' && user === 'user') expect(allowed(said)).toEqual([]);
      }
    },
  );

  suite.inBox(
    'no descriptor of any process leads out of the root',
    ['isolation', 'processes'],
    async (box, context) => {
      for (const user of ['user', box.strongest]) {
        const { leads, escapes } = await tried(box, context, user, 'descriptors');
        expect(escapes).toEqual([]);
        const known = /^(\/dev\/(null|pts\/\d+|ptmx|tty)|pipe|socket|anon_inode|host)$/;
        expect((leads as string[]).filter((lead) => !known.test(lead) && !lead.startsWith(box.dir))).toEqual(
          [],
        );
      }
    },
  );

  suite.inBox(
    '/proc and /sys tell nothing of the host or of others',
    ['isolation', 'processes'],
    async (box, context) => {
      requireOurs(suite, context);
      const other = await suite.box();
      for (const user of ['user', box.strongest]) {
        const said = await tried(box, context, user, 'walk', [other.id, ...(suite.platform.hostPaths ?? [])]);
        // Of its own directories a sandbox sees the paths, as the sources of its mounts.
        const mounts = /^\/proc\/(self\/)?(mounts|mountinfo|mountstats)$/;
        expect((said['found'] as string[]).filter((path) => !mounts.test(path))).toEqual([]);
        if (suite.platform.kernel === 'own') continue;
        expect(said['writable']).toEqual([]);
        expect(said['masked']).toEqual([]);
        expect(said['sys']).toEqual(['devices', 'kernel']);
      }
    },
  );

  suite.inBox(
    'who takes all that the kernel counts leaves enough to a neighbour',
    ['isolation', 'processes'],
    async (box, context) => {
      requireOurs(suite, context);
      const other = await suite.box();
      const greedy = await box.start(['python3', '-c', TRIALS, 'take'], { user: 'user', stdin: true });
      const taken = await firstLine(greedy.output);
      const had = await tried(other, context, 'user', 'have');
      await greedy.closeStdin();
      if (suite.platform.kernel === 'shared') {
        expect(taken).toMatchObject({ io_setup: 'ENOSYS', mq_open: 'ENOSYS', mlock: 'EPERM' });
        expect(taken['terminals']).toBeLessThanOrEqual(256);
      }
      expect(had).toMatchObject({ inotify: 'ok', terminals: 'ok', signals: 'ok' });
      // These are counted by the user that a sandbox has on the host.
      if (await sameIds(box, other)) return;
      expect(had['descriptors in flight']).toBe('ok');
      expect(had['pipe bytes']).toBe(65_536);
    },
  );

  suite.inBox(
    'a command that kills its supervisor has an end, again and again',
    ['isolation', 'processes'],
    async (box) => {
      // The supervisor may just be taking the status of the command.
      for (let round = 0; round < 20; round++)
        expect(await box.run('kill -9 $PPID; exit 3', { user: box.strongest })).toMatchObject({
          exitCode: 3,
        });
    },
  );

  suite.case(
    'a sandbox that kills all it can ends nothing but its own',
    ['isolation', 'processes'],
    async () => {
      const [box, other] = [await suite.box(), await suite.box()];
      for (const user of ['user', box.strongest]) {
        const killing = box.run('kill -STOP -1; kill -9 -1', { user }).catch(() => undefined);
        await Promise.race([killing, sleep(1000)]);
      }
      expect((await other.run(['true'])).exitCode).toBe(0);
      await suite.backend.ensure(box.id, suite.spec());
    },
  );
}

function requireOurs(suite: Suite, { skip }: CaseContext): void {
  if (suite.platform.kernel === undefined) skip(ENGINE);
  if (process.arch !== 'x64') skip('the trials know the system calls of x86-64 alone');
}

async function tried(
  box: Box,
  { skip }: CaseContext,
  user: string,
  group: string,
  words: string[] = [],
): Promise<Record<string, unknown>> {
  if (!(await hasProgram(box, 'python3'))) skip('the image has no python3');
  const { stdout, stderr, exitCode } = await box.run(
    ['python3', '-c', TRIALS, group, JSON.stringify(words)],
    { user },
  );
  expect(exitCode, stderr).toBe(0);
  return JSON.parse(stdout) as Record<string, unknown>;
}

const allowed = (said: Record<string, unknown>) => Object.keys(said).filter((name) => said[name] === 'ok');

async function firstLine(
  output: Awaited<ReturnType<Box['start']>>['output'],
): Promise<Record<string, unknown>> {
  let text = '';
  for await (const chunk of output) {
    if (chunk.channel === 'gap') continue;
    text += Buffer.from(chunk.data).toString();
    if (text.includes('\n')) break;
  }
  return JSON.parse(text.split('\n')[0]!) as Record<string, unknown>;
}

async function sameIds(one: Box, other: Box): Promise<boolean> {
  const [a, b] = await Promise.all(
    [one, other].map(
      async (box) => (await box.run(['cat', '/proc/self/uid_map'])).stdout.trim().split(/\s+/)[1],
    ),
  );
  return a === b && a !== '0';
}

/** Those that the host has loaded. */
function modules(): string[] {
  try {
    return readFileSync('/proc/modules', 'utf8')
      .split('\n')
      .map((line) => line.split(' ')[0]!)
      .toSorted();
  } catch {
    return [];
  }
}
