/**
 * Many sandboxes made, used and removed one after the other by one process: it holds no more at the end than
 * at the beginning, and when everything was destroyed nothing is left on the host.
 *
 * A few cycles run with the tests; `CAY_CHURN_CYCLES=500 npx vitest run test/faults/churn.test.ts` runs more,
 * `CAY_CHURN_RUNTIMES` says on what.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';

interface Held {
  open: number;
  rss: number;
  heapUsed: number;
}

const MiB = 1024 * 1024;
const cycles = Number(process.env['CAY_CHURN_CYCLES'] ?? 40);
const runtimes = (process.env['CAY_CHURN_RUNTIMES'] ?? 'runc,runsc').split(',');
const reason = whyNoLocal();
/** gVisor's sandboxes take the same way through the backend. */
const later = runtimes.includes('runsc') ? whyLater() : undefined;
if (later !== undefined) it.skip(`churn on runsc (${later})`, () => {});

describe
  .skipIf(reason !== undefined)
  .each(runtimes.filter((runtime) => later === undefined || runtime !== 'runsc'))(
  `churn on %s${reason ? ` (skipped: ${reason})` : ''}`,
  (runtime) => {
    let dir: string;
    beforeAll(async () => {
      dir = await mkdtemp('/tmp/cay-c-');
      await chmod(dir, 0o711);
    });
    afterAll(async () => {
      // Also what a process that ended too early has left.
      const backend = await openLocal({ dir });
      await backend.destroy();
      await rm(dir, { recursive: true, force: true });
    });

    it(
      'holds on to nothing and leaves nothing behind',
      async () => {
        const said: string[] = [];
        const child = spawn(
          process.execPath,
          ['--expose-gc', join(import.meta.dirname, 'cycles.ts'), dir, runtime, String(cycles)],
          {
            stdio: ['ignore', 'pipe', 'pipe'],
          },
        );
        let words = '';
        child.stderr.on('data', (chunk: Buffer) => (words += chunk.toString()));
        let installation = '';
        for await (const line of createInterface({ input: child.stdout })) {
          if (said.push(line) === 1)
            installation = (
              JSON.parse(readFileSync(join(dir, 'installation.json'), 'utf8')) as { name: string }
            ).name;
        }
        expect(said, words).toHaveLength(3);
        const [before, after] = said.map((line) => JSON.parse(line) as Held);
        console.info(`${runtime}, ${cycles} cycles: ${show(before!)}, then ${show(after!)}`);

        expect(JSON.parse(said[2]!)).toEqual({ errors: [] });
        expect(after!.open).toBe(before!.open);
        expect(after!.heapUsed - before!.heapUsed).toBeLessThan(4 * MiB);
        // The allocator keeps some of what was given back to it.
        expect(after!.rss - before!.rss).toBeLessThan(48 * MiB);
        expect(leftovers(dir, installation)).toEqual([]);
      },
      120_000 + cycles * 3_000,
    );
  },
);

const show = ({ open, rss, heapUsed }: Held) =>
  `${open} open files, ${(rss / MiB).toFixed(1)} MiB resident, ${(heapUsed / MiB).toFixed(1)} MiB of heap`;

function leftovers(dir: string, installation: string): string[] {
  const roots = [
    '/sys/fs/cgroup',
    ...readdirSync('/sys/fs/cgroup').map((name) => join('/sys/fs/cgroup', name)),
  ];
  const processes = readdirSync('/proc').filter(
    (name) => /^\d+$/.test(name) && commandLine(name).includes(dir),
  );
  return [
    ...roots.map((root) => join(root, `cay-${installation}`)).filter(existsSync),
    ...readFileSync('/proc/self/mounts', 'utf8')
      .split('\n')
      .filter((line) => line.includes(dir)),
    ...execFileSync('losetup', ['--list', '--noheadings', '--output', 'BACK-FILE'], { encoding: 'utf8' })
      .split('\n')
      .filter((file) => file.includes(dir)),
    ...processes.map((pid) => `process ${pid}: ${commandLine(pid)}`),
    ...readdirSync(dir),
  ];
}

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    // It has ended meanwhile.
    return '';
  }
}
