import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { detectCgroups } from '../cgroups/detect.ts';
import { runcRuntime } from '../runtimes/runc.ts';
import { runscRuntime } from '../runtimes/runsc.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { run } from '../../lib/run.ts';
import { baseTemplate } from './base.ts';

/** Directories, without snapshots: enough to fill a tree and to look at it. */
function plainTrees(dir: string): Snapshotter & { commits: number } {
  const trees = {
    name: 'plain',
    commits: 0,
    capabilities: { quota: false, instant: false, incremental: false },
    prepare: async (key: string, options?: { parent?: string }) => {
      if (options?.parent === undefined) mkdirSync(join(dir, key), { recursive: true });
      else await run('cp', ['-a', join(dir, `${options.parent}.committed`), join(dir, key)]);
      return join(dir, key);
    },
    path: async (key: string) => join(dir, key),
    commit: async (name: string, key: string) => {
      trees.commits += 1;
      await run('cp', ['-a', join(dir, key), join(dir, `${name}.partial`)]);
      renameSync(join(dir, `${name}.partial`), join(dir, `${name}.committed`));
    },
    committedPath: async (name: string) => join(dir, `${name}.committed`),
    async *changes() {},
    setQuota: async () => {},
    written: async () => undefined,
    usage: async () => 0,
    remove: async (name: string) => rmSync(join(dir, name), { recursive: true, force: true }),
    list: async () =>
      readdirSync(dir)
        .filter((name) => name.endsWith('.committed'))
        .map((name) => ({ name: name.slice(0, -10), kind: 'committed' as const })),
    space: async () => ({ totalBytes: 0, freeBytes: 0 }),
    close: async () => {},
    destroy: async () => {},
  };
  return trees;
}

const ids = { hostId: 1_000_000, size: 65_536 };
const dir = mkdtempSync(join(tmpdir(), 'cay-template-'));
chmodSync(dir, 0o711);
const prefix = `cay-test-template-${process.pid}`;
const trees = plainTrees(mkdtempSync(join(dir, 'trees-')));
const template = baseTemplate();
afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
  for (const hierarchy of readdirSync('/sys/fs/cgroup')) {
    const parent = join('/sys/fs/cgroup', hierarchy, prefix);
    if (existsSync(parent)) rmdirSync(parent);
  }
});

describe('baseTemplate()', () => {
  it('makes the tree once, also when asked twice at a time, and leaves no scaffolding', async () => {
    const [first, second] = await Promise.all([template.prepare(trees, ids), template.prepare(trees, ids)]);
    expect(await baseTemplate().prepare(trees, ids)).toEqual(first);
    expect(second).toEqual(first);
    expect(trees.commits).toBe(1);
    expect(first.tree).toMatch(/^template-base-[0-9a-f]{16}$/);
    expect(first.binds).toContainEqual({ source: '/usr', target: '/usr', readOnly: true });
    expect(readdirSync(await trees.path(''))).toEqual([`${first.tree}.committed`]);
  });

  it('is another tree for other ids', async () => {
    const other = plainTrees(mkdtempSync(join(dir, 'other-')));
    const { tree } = await template.prepare(trees, ids);
    expect((await template.prepare(other, { hostId: 2_000_000, size: 65_536 })).tree).not.toBe(tree);
  });

  it('belongs to the mapped root, and the home directory to the mapped user', async () => {
    const { tree } = await template.prepare(trees, ids);
    const root = await trees.path(`${tree}.committed`);
    const strangers = await run('find', [
      root,
      '-path',
      join(root, 'home/user'),
      '-prune',
      '-o',
      '!',
      '-uid',
      '1000000',
      '-print',
      '-o',
      '!',
      '-gid',
      '1000000',
      '-print',
    ]);
    expect(strangers.stdout).toBe('');
    expect(statSync(join(root, 'home/user')).uid).toBe(1_001_000);
    expect(statSync(join(root, 'tmp')).mode & 0o7777).toBe(0o1777);
    expect(readFileSync(join(root, 'etc/passwd'), 'utf8')).toContain(
      'user:x:1000:1000:user:/home/user:/bin/bash',
    );
  });

  it('has nothing of the host that could be a secret', async () => {
    const { tree } = await template.prepare(trees, ids);
    const etc = join(await trees.path(`${tree}.committed`), 'etc');
    // Our own: what the host's names may be an index with a password.
    expect(readFileSync(join(etc, 'pip.conf'), 'utf8')).toBe('[global]\nbreak-system-packages = true\n');
    for (const name of [
      'shadow',
      'gshadow',
      'ssl/private',
      'ssh',
      'machine-id',
      'gitconfig',
      'npmrc',
      'apt',
      'docker',
      'sudoers',
      'pki/tls/private',
    ]) {
      expect(existsSync(join(etc, name)), name).toBe(false);
    }
    const found = await run('grep', ['-rlE', 'BEGIN ([A-Z]+ )?PRIVATE KEY', etc]).catch(
      (error: { stdout: string }) => error,
    );
    expect(found.stdout).toBe('');
  });
});

/** A stand-in for the guest that tries the tools as the user and then stays. */
const TRIAL = `#!/bin/sh
cat > /tmp/trial.sh <<'END'
cd /home/user
id -un
python3 -c 'import ssl, json, sqlite3, ctypes; print("python", 6 * 7)'
node -e 'console.log("node", 6 * 7)'
perl -MList::Util=sum -e 'print "perl ", sum(40, 2), "\\n"'
git init -q repo && cd repo && git -c user.name=u -c user.email=u@e commit -q --allow-empty -m x && echo git $(git rev-list --count HEAD)
printf '#include <stdio.h>\\nint main(void) { puts("gcc 42"); }\\n' > a.c && gcc a.c -o a && ./a
awk 'BEGIN { print "awk", 42 }'
END
setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/user sh /tmp/trial.sh > /tmp/out 2>&1
su user -c 'echo su $(id -un)' >> /tmp/out 2>&1
setpriv --reuid 1000 --regid 1000 --clear-groups su root -c 'id -un' >> /tmp/out 2> /tmp/refusal || echo refused $? >> /tmp/out
mv /tmp/out /tmp/done
sleep 1000
`;

for (const factory of [runcRuntime, runscRuntime]) {
  const runtime = factory({ stateDir: join(dir, 'state'), ids });
  const probe = await runtime.probe();
  const wanted = [
    'python3:python 42',
    'node:node 42',
    'perl:perl 42',
    'git:git 1',
    'gcc:gcc 42',
    'awk:awk 42',
    'su:su user',
    'su:refused 1',
  ]
    .map((pair) => pair.split(':') as [string, string])
    .filter(([program]) => existsSync(`/usr/bin/${program}`));
  const title = probe.available
    ? `baseTemplate() under ${runtime.name}`
    : `baseTemplate() under ${runtime.name} (skipped: ${probe.reason})`;
  if (!probe.available) console.warn(title);

  describe.skipIf(!probe.available)(title, () => {
    it('runs the tools of the machine as the user', async () => {
      const { tree, binds } = await template.prepare(trees, ids);
      const rootDir = await trees.prepare(`try-${runtime.name}`, { parent: tree });
      chmodSync(await trees.path(''), 0o711);
      const bundleDir = join(dir, `bundle-${runtime.name}`);
      const socketDir = join(bundleDir, 'socket');
      mkdirSync(socketDir, { recursive: true });
      chownSync(socketDir, ids.hostId, ids.hostId);
      const guestBinary = join(bundleDir, 'trial');
      writeFileSync(guestBinary, TRIAL, { mode: 0o755 });
      const cgroup = (await detectCgroups({ prefix })).group(`try-${runtime.name}`);
      await cgroup.create({ cpus: null, memoryBytes: 2 ** 30, pids: 500 });
      try {
        await runtime.start({
          name: `try-${runtime.name}`,
          bundleDir,
          rootDir,
          readOnlyRoot: false,
          socketDir,
          guestBinary,
          binds,
          cgroup,
          hostname: 'try',
          openFiles: 1024,
        });
        const done = join(rootDir, 'tmp/done');
        for (let tries = 0; !existsSync(done) && tries < 400; tries += 1) await sleep(50);
        const lines = readFileSync(done, 'utf8').trim().split('\n');
        expect(lines).toEqual(['user', ...wanted.map(([, line]) => line)]);
        expect(statSync(join(rootDir, 'home/user/repo/a')).uid).toBe(1_001_000);
      } finally {
        await runtime.remove(`try-${runtime.name}`, cgroup);
      }
    });
  });
}
