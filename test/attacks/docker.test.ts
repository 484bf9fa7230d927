/** Attacks on a server whose sandboxes are containers of a real Docker engine. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';
import { startTarget, type Target } from './support/target.ts';

const MiB = 1024 ** 2;
const CANARY = 'canary-of-the-docker-attacks';
const reason = whyNoDockerd();
if (reason) console.log(`skipped: no Docker engine can be started here: ${reason}`);

describe.skipIf(reason)('on Docker', { timeout: 60_000 }, () => {
  let docker: Dockerd;
  let target: Target;
  beforeAll(async () => {
    docker = await startDockerd();
    await Promise.all([docker.importBaseImage('own-base'), docker.importBaseImage('of-another-team')]);
    target = await startTarget({
      backend: 'docker',
      flags: [
        '--docker-host',
        docker.host,
        '--docker-image',
        'own-base',
        '--allow-image',
        'own-*',
        '--allow-runtime',
        'runc',
      ],
    });
  });
  afterAll(async () => {
    await target?.[Symbol.asyncDispose]();
    await docker?.stop();
  });

  const engine = async (...args: string[]) =>
    (await promisify(execFile)('docker', ['--host', docker.host, ...args])).stdout;

  it('a tenant gets no runtime and no image that the operator does not allow', async () => {
    const { alice, admin } = target;
    for (const body of [
      { runtime: 'runsc' },
      { runtime: 'process' },
      { runtime: 'io.containerd.runc.v2' },
      { template: 'of-another-team' },
    ]) {
      for (const who of [alice, admin]) {
        expect((await who.call('POST', '/v1/sandboxes', { body })).status, JSON.stringify(body)).toBe(403);
      }
    }
    expect((await alice.call('GET', '/v1/templates')).text).not.toContain('of-another-team');
    expect(await engine('ps', '--all', '--quiet')).toBe('');
  });

  it('a secret of a sandbox is nowhere in what the engine knows of its container', async () => {
    const { id } = await target.alice.create({ env: { SECRET: CANARY } });
    expect((await target.alice.exec(id, ['sh', '-c', 'echo $SECRET'])).stdout.trim()).toBe(CANARY);
    const containers = (await engine('ps', '--all', '--quiet')).trim().split('\n');
    expect(containers).toHaveLength(1);
    const known = await engine('inspect', ...containers);
    expect(known).toContain(id);
    expect(known).not.toContain(CANARY);
    await target.alice.call('DELETE', `/v1/sandboxes/${id}`);
  });

  it('a guest that was made mute keeps nobody waiting for ever, and a neighbour not at all', async () => {
    const { alice, bob } = target;
    const [mute, other] = await Promise.all([alice.create(), bob.create()]);
    const program = 'import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))';
    await alice.exec(mute.id, ['python3', '-c', program], { user: 'root' });
    const ask = (signal: AbortSignal) =>
      alice.call('POST', `/v1/sandboxes/${mute.id}/exec`, {
        body: { argv: ['true'], timeoutMs: 1000 },
        signal,
      });
    const [answer, neighbour] = await Promise.all([
      ask(AbortSignal.timeout(30_000)),
      bob.exec(other.id, ['echo', 'here']),
    ]);
    expect(answer.status).toBeLessThan(600);
    expect(neighbour.stdout).toBe('here\n');
    expect((await alice.call('DELETE', `/v1/sandboxes/${mute.id}`)).status).toBeLessThan(300);
    await bob.call('DELETE', `/v1/sandboxes/${other.id}`);
    await target.requireAlive();
  });

  it('large outputs and a bomb of processes leave the server and a neighbour as they were', async () => {
    const { alice, bob } = target;
    const [attacker, other] = await Promise.all([alice.create({ limits: { pids: 64 } }), bob.create()]);
    const before = target.rssBytes();
    const zeros = { argv: ['head', '-c', String(8 * MiB), '/dev/zero'], maxOutputBytes: 8 * MiB };
    await Promise.all(
      Array.from({ length: 6 }, () =>
        alice.call('POST', `/v1/sandboxes/${attacker.id}/exec`, { body: zeros }),
      ),
    );
    expect(target.rssBytes() - before).toBeLessThan(700 * MiB);
    const bomb = 'import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(1)';
    await alice.call('POST', `/v1/sandboxes/${attacker.id}/commands`, {
      body: { argv: ['python3', '-c', bomb] },
    });
    expect((await bob.exec(other.id, ['echo', 'here'])).stdout).toBe('here\n');
    await target.requireAlive();
    const [container] = (await engine('ps', '--quiet', '--filter', `name=${attacker.id}`)).trim().split('\n');
    expect((await engine('top', container!)).trim().split('\n').length).toBeLessThanOrEqual(65);
  });
});
