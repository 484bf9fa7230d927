/** What only Docker has: runtimes of the engine, images, and files that the engine itself reads. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lowKernelLimits } from '../../server/src/host/kernel-limits.ts';
import { startTarget, type Target } from './support/target.ts';
import { whyNotHere } from './support/why-not-here.ts';

const reason = whyNotHere({ backend: 'docker' });
if (reason !== undefined) console.info(`attacks on Docker: skipped: ${reason}`);

describe.skipIf(reason !== undefined)('on Docker', { timeout: 60_000 }, () => {
  let target: Target;
  beforeAll(async () => {
    target = await startTarget({
      backend: 'docker',
      flags: ['--allow-image', 'own-*', '--allow-runtime', 'runc'],
    });
    const { docker } = target;
    await docker!.importBaseImage('of-another-team');
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose]());

  const engine = async (...args: string[]) =>
    (await promisify(execFile)('docker', ['--host', target.docker!.host, ...args])).stdout;

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

  it('an image whose accounts are a pipe is refused, and does not hang the engine', async () => {
    const { alice, bob } = target;
    const dockerfile = 'FROM of-another-team\nRUN rm -f /etc/passwd && mkfifo /etc/passwd\n';
    const build = execFile('docker', ['--host', target.docker!.host, 'build', '-q', '-t', 'own-pipe', '-']);
    build.stdin!.end(dockerfile);
    expect(await new Promise((resolve) => build.once('exit', resolve))).toBe(0);
    const { status, json, text } = await alice.call('POST', '/v1/sandboxes', {
      body: { template: 'own-pipe' },
      signal: AbortSignal.timeout(20_000),
    });
    expect([status, json?.error?.message], text).toEqual([
      expect.toSatisfy((code: number) => code >= 400 && code < 500),
      expect.stringContaining('named pipe'),
    ]);
    const { id } = await bob.create();
    expect((await bob.exec(id, ['echo', 'here'])).stdout).toBe('here\n');
    expect((await engine('ps', '--all', '--quiet')).trim().split('\n')).toHaveLength(1);
  });

  it('limits of the kernel that all containers share are out of reach', () => {
    expect(lowKernelLimits()).toEqual([]);
  });
});
