/**
 * The server is kept apart from its sandboxes: in a cgroup of its own with the greater share, and none of
 * them is in it.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { openInstallation, type Installation } from './model/installation.ts';

/** Where a process is in the hierarchy that shares out the processor. */
function cpuGroup(pid: number | 'self'): string {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim().split('\n');
  const line =
    lines.find((candidate) => candidate.split(':')[1]!.split(',').includes('cpu')) ??
    lines.find((one) => one.startsWith('0::'))!;
  return line.split(':').slice(2).join(':');
}
const reason =
  whyNoLocal() ??
  (cpuGroup('self') === '/' ? undefined : 'this process is in a cgroup that somebody else has made');

describe.skipIf(reason !== undefined)(
  `the server's own cgroup${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let installation: Installation | undefined;
    afterEach(async () => {
      await installation?.destroy();
      installation = undefined;
    });

    it('has the server and no sandbox in it, also after a restart, and goes with the installation', async () => {
      installation = await openInstallation('runc');
      await installation.start();
      const { name } = JSON.parse(
        readFileSync(join(installation.engineDir, 'installation.json'), 'utf8'),
      ) as { name: string };
      const own = `/cay-${name}-server`;
      const dir = ['/sys/fs/cgroup/cpu', '/sys/fs/cgroup/cpu,cpuacct', '/sys/fs/cgroup']
        .map((root) => `${root}${own}`)
        .find(existsSync)!;
      expect(cpuGroup(installation.server!.pid!)).toBe(own);
      const share = ['cpu.shares', 'cpu.weight']
        .map((file) => join(dir, file))
        .find((file) => existsSync(file))!;
      const ofSandboxes = share.replace(own, `/cay-${name}`);
      expect(Number(readFileSync(share, 'utf8'))).toBeGreaterThanOrEqual(
        10 * Number(readFileSync(ofSandboxes, 'utf8')),
      );

      for (const runtime of ['runc', 'runsc'])
        expect(await installation.client.call('POST', '/v1/sandboxes', { body: { runtime } })).toHaveProperty(
          'done',
        );
      const processes = () => readFileSync(join(dir, 'cgroup.procs'), 'utf8').trim().split('\n');
      await installation.kill('SIGKILL');
      // Whatever the sandboxes need to go on is theirs.
      await expect.poll(() => processes()).toEqual(['']);
      expect(globSync(`${dir.replace(own, `/cay-${name}`)}/i-*`).length).toBeGreaterThanOrEqual(2);
      await installation.start();
      expect(cpuGroup(installation.server!.pid!)).toBe(own);
      await installation.destroy();
      installation = undefined;
      expect(existsSync(dir)).toBe(false);
    }, 120_000);
  },
);
