/**
 * What one sandbox has on the host is out of reach for another sandbox and for accounts of the host, by its
 * ids alone: these cases begin where the walls of the runtime have fallen already, with a process on the host
 * that has the ids of a sandbox.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Sandbox } from '@cay/sdk/protocol';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';
import { insideEachPlatform, requireAbility } from './support/platforms.ts';
import type { Target, Tenant } from './support/target.ts';

const STORED = 1_879_048_192;
const SIZE = 65_536;
const NOBODY = 65_534;

/** Fills the pipes of its user up to what the kernel allows one user, and holds them. */
const FILL_PIPES = `
import os, time
held = [os.pipe() for _ in range(1100)]
print('held', flush=True)
time.sleep(600)
`;
const PIPE_SIZE = 'import fcntl, os; print(fcntl.fcntl(os.pipe()[0], 1032))';
/** Who owns the user namespace of a process: what is counted for each user is counted for that one too. */
const NAMESPACE_OWNER = `
import array, fcntl, sys
owner = array.array('I', [0])
fcntl.ioctl(open(f'/proc/{sys.argv[1]}/ns/user'), 0xb704, owner)
print(owner[0])
`;

/** One sandbox as the host sees it. */
interface Seen {
  tenant: Tenant;
  id: string;
  instance: string;
  tree: string;
  pids: number[];
  uids: number[];
  root: number;
}

insideEachPlatform('host ids of sandboxes', ({ name: runtime, start }) => {
  let target: Target;
  let alice: Seen;
  let bob: Seen;
  const sandboxes = new Map<Tenant, Sandbox>();

  beforeAll(async () => {
    target = await start();
    for (const tenant of [target.alice, target.bob]) {
      const sandbox = await tenant.create();
      sandboxes.set(tenant, sandbox);
      await tenant.exec(sandbox.id, [
        'sh',
        '-c',
        'umask 077; echo secret > /home/user/mine; (sleep 600 > /dev/null 2>&1 &)',
      ]);
      await tenant.exec(sandbox.id, ['sh', '-c', 'cp /usr/bin/id /tmp/su && chmod 4755 /tmp/su'], {
        user: 'root',
      });
    }
    if (!target.lacks('ownIds')) [alice, bob] = [look(target.alice), look(target.bob)];
  }, 120_000);
  afterAll(async () => {
    if (!target) return;
    const { dataDir } = target;
    await target[Symbol.asyncDispose]();
    expect(links(dataDir)).toEqual([]);
  });

  function look(tenant: Tenant): Seen {
    const { id } = sandboxes.get(tenant)!;
    const engine = join(target.dataDir, 'engine');
    const { instance, tree } = JSON.parse(
      readFileSync(join(engine, 'sandboxes', `${id}.json`), 'utf8'),
    ) as Record<string, string>;
    const pids = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name) && read(`/proc/${name}/cgroup`).includes(instance!))
      .map(Number);
    const uids = pids.flatMap((pid) => [...idsOf(pid, 'Uid'), ...idsOf(pid, 'Gid')]);
    const path = join(engine, 'storage/pool/trees', tree!);
    return { tenant, id, instance: instance!, tree: path, pids, uids, root: Math.min(...uids) };
  }

  it('are of a range that no other sandbox has, and not those that files are stored with', async (context) => {
    requireAbility(context, target, 'ownIds');
    for (const { uids, root, pids } of [alice, bob]) {
      expect(pids.length).toBeGreaterThan(0);
      expect(uids.filter((uid) => uid < root || uid >= root + SIZE)).toEqual([]);
      expect(root).toBeGreaterThanOrEqual(STORED + SIZE);
      expect(root % SIZE).toBe(0);
      // To the host's kernel all of gVisor is one user.
      if (runtime === 'runc') expect(uids).toContain(root + 1000);
    }
    expect(alice.root).not.toBe(bob.root);
    const { json } = await target.admin.call('GET', '/v1/capabilities');
    expect(json.abilities.ownIds).toBe(true);
    for (const { tree } of [alice, bob]) {
      expect(statSync(join(tree, 'home/user/mine')).uid).toBe(STORED + 1000);
      expect(statSync(join(tree, 'tmp/su')).uid).toBe(STORED);
    }
  });

  it('let no process signal, look into or read what another has', (context) => {
    requireAbility(context, target, 'ownIds');
    const [own, other] = [alice.pids[0]!, bob.pids[0]!];
    expect(as(alice.root, 'kill', '-0', String(own))).toMatchObject({ status: 0 });
    for (const pid of bob.pids) expect(as(alice.root, 'kill', '-0', String(pid)).status).not.toBe(0);
    expect(as(alice.root, 'ls', `/proc/${other}/root/`).status).not.toBe(0);
    const socketDir = join(target.dataDir, 'engine/instances', bob.instance, 'run');
    expect(as(bob.root, 'ls', socketDir).status).toBe(0);
    expect(as(alice.root, 'ls', socketDir).status).not.toBe(0);
    // Neither by the path on the disk, nor where a mount as the other sandbox has it can be passed
    // through.
    const at = mkdtempSync('/tmp/cay-attack-mount-');
    chmodSync(at, 0o755);
    mkdirSync(join(at, 'root'));
    const shift = `${STORED}:${bob.root}:${SIZE}`;
    const mounted = [
      'on-tree',
      '--tree',
      bob.tree,
      '--at',
      join(at, 'root'),
      '--log',
      join(at, 'log'),
      '--shift',
      shift,
      '--',
    ];
    const reading = (uid: number) =>
      spawnSync(guestBinary(), [...mounted, ...setpriv(uid), 'cat', join(at, 'root/home/user/mine')], {
        encoding: 'utf8',
      });
    try {
      expect(reading(bob.root + 1000).stdout).toBe('secret\n');
      for (const uid of [alice.root, alice.root + 1000, STORED, STORED + 1000])
        expect(reading(uid).stdout).toBe('');
      for (const uid of [alice.root, bob.root, STORED, STORED + 1000]) {
        expect(as(uid, 'cat', join(bob.tree, 'home/user/mine')).stderr).toContain('Permission denied');
      }
    } finally {
      rmSync(at, { recursive: true });
    }
  });

  it('are not to be had by an account of the host that finds a set-user-id file', (context) => {
    requireAbility(context, target, 'ownIds');
    const made = join(bob.tree, 'tmp/su');
    expect(statSync(made).mode & 0o4111).toBe(0o4111);
    // gVisor still has the file open for writing, which would keep it from being run for another reason.
    const file = `${made}-again`;
    copyFileSync(made, file);
    chownSync(file, STORED, STORED);
    chmodSync(file, 0o4755);
    expect(as(NOBODY, file, '-u')).toMatchObject({
      stdout: '',
      stderr: expect.stringContaining('Permission denied'),
    });
    // Also if all directories above are open to every user.
    const pool = join(target.dataDir, 'engine/storage/pool');
    const way = [pool, join(pool, 'trees')];
    for (const path of way) chmodSync(path, 0o755);
    const { stdout } = as(NOBODY, file, '-u');
    for (const path of way) chmodSync(path, 0o700);
    expect(stdout).toBe(`${NOBODY}\n`);
  });

  it.skipIf(runtime !== 'runc')("share none of the kernel's counters for each user", async () => {
    const usual = await bob.tenant.exec(bob.id, ['python3', '-c', PIPE_SIZE]);
    await alice.tenant.exec(
      alice.id,
      ['sh', '-c', `python3 -c "$CODE" > /tmp/out & until grep -q held /tmp/out; do sleep 0.1; done`],
      {
        env: { CODE: FILL_PIPES },
      },
    );
    const filled = await alice.tenant.exec(alice.id, ['python3', '-c', PIPE_SIZE]);
    expect(Number(filled.stdout)).toBeLessThan(Number(usual.stdout));
    expect((await bob.tenant.exec(bob.id, ['python3', '-c', PIPE_SIZE])).stdout).toBe(usual.stdout);
    for (const { pids, root } of [alice, bob]) {
      const owner = execFileSync('python3', ['-c', NAMESPACE_OWNER, String(pids[0])], {
        encoding: 'utf8',
      });
      expect(Number(owner)).toBe(root);
    }
  });

  it.skipIf(runtime !== 'runsc')('are others again in a fork that goes on with its memory', async () => {
    const { status, json, text } = await alice.tenant.call('POST', `/v1/sandboxes/${alice.id}/fork`, {
      body: { count: 1, memory: true },
    });
    expect(status, text).toBe(201);
    const [child] = json.sandboxes as Sandbox[];
    sandboxes.set(target.alice, child!);
    const seen = look(target.alice);
    expect([alice.root, bob.root]).not.toContain(seen.root);
    expect((await alice.tenant.exec(child!.id, ['cat', '/home/user/mine'])).stdout).toBe('secret\n');
    await alice.tenant.exec(child!.id, ['sh', '-c', 'echo more >> /home/user/mine']);
    expect(statSync(join(seen.tree, 'home/user/mine')).uid).toBe(STORED + 1000);
  });

  it.skipIf(runtime !== 'docker')('let no account of the host run a set-user-id file that it finds', () => {
    const { id } = sandboxes.get(target.bob)!;
    const engine = (...args: string[]) =>
      execFileSync('docker', ['--host', target.docker!.host, ...args], { encoding: 'utf8' }).trim();
    const container = engine('ps', '--quiet', '--filter', `name=${id}`);
    const tree = engine('inspect', '--format', '{{.GraphDriver.Data.MergedDir}}', container);
    const made = join(tree, 'tmp/su');
    expect(statSync(made).mode & 0o4111).toBe(0o4111);
    expect(as(NOBODY, made, '-u')).toMatchObject({
      stdout: '',
      stderr: expect.stringContaining('Permission denied'),
    });
  });
});

function setpriv(uid: number): string[] {
  // It finds the next program as root still; `env` finds the one after with those ids.
  return ['setpriv', '--reuid', String(uid), '--regid', String(uid), '--clear-groups', 'env'];
}

/** Runs it on the host with those ids and no rights beyond them. */
function as(uid: number, ...argv: string[]) {
  const [program, ...args] = setpriv(uid);
  return spawnSync(program!, [...args, ...argv], { encoding: 'utf8' });
}

function idsOf(pid: number, kind: 'Uid' | 'Gid'): number[] {
  const line = new RegExp(`^${kind}:\\s+(.*)$`, 'm').exec(read(`/proc/${pid}/status`))?.[1];
  return line?.split(/\s+/).map(Number) ?? [];
}

/** Ranges that the data directory still has. */
function links(dataDir: string): string[] {
  const { stdout } = spawnSync('find', ['/run/cay/ids', '-lname', `${dataDir}/*`], { encoding: 'utf8' });
  return stdout.split('\n').filter((line) => line !== '');
}

/** Empty if it has gone meanwhile. */
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
