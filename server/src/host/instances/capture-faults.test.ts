/** What is killed or runs out in the middle of a capture or a revival. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { captureInstance } from './capture.ts';
import { destroyInstance, type Instance } from './instance.ts';
import { reviveInstance } from './revive.ts';
import {
  instanceResources,
  LIMITS,
  request,
  run,
  whyNoInstances,
  type InstanceResources,
} from './testing/instance-resources.ts';

const reason = await whyNoInstances('runsc');
if (reason) console.warn(`Faults of captures (skipped: ${reason})`);

describe.skipIf(reason !== undefined)(
  `faults of captures${reason ? ` (skipped: ${reason})` : ''}`,
  { timeout: 120_000 },
  () => {
    let at: InstanceResources;
    let parent: Instance;
    beforeAll(async () => {
      at = await instanceResources('runsc');
      parent = await at.start();
      // Something to write down.
      const program =
        'import os, time; kept = os.urandom(64 << 20); print("ready", flush=True); time.sleep(600)';
      const handle = await parent.link.guest.exec(
        request('', { shell: undefined, argv: ['python3', '-c', program] }),
      );
      await handle.output[Symbol.asyncIterator]().next();
    }, 60_000);
    afterAll(() => at.end(), 60_000);

    const whileStill = async () => {};

    it('a full disk is reported as resource_exhausted, and the instance continues', async () => {
      const imageDir = await at.imageDir();
      expect(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', imageDir]).status).toBe(0);
      try {
        await expect(
          captureInstance(at.resources, parent, { imageDir, goOn: true, whileStill }),
        ).rejects.toMatchObject({
          code: 'resource_exhausted',
        });
      } finally {
        spawnSync('umount', ['-l', imageDir]);
      }
      expect(await run(parent, 'echo on')).toBe('on');
    });

    for (const [moment, due] of [
      ['at once', () => true],
      ['when it has begun to write', (imageDir: string) => sizeOf(join(imageDir, 'checkpoint.img')) > 0],
      ['when it has written much', (imageDir: string) => sizeOf(join(imageDir, 'pages.img')) > 1 << 20],
    ] as const) {
      it(`the instance goes on when who writes its memory is killed ${moment}`, async () => {
        const imageDir = await at.imageDir();
        const capturing = captureInstance(at.resources, parent, { imageDir, goOn: true, whileStill });
        const killed = killWhen('checkpoint', imageDir, () => due(imageDir));
        const outcome = await capturing.then(
          () => 'captured',
          (error: { code: string }) => error.code,
        );
        // Who is killed after the last byte has not failed.
        expect(['unavailable', ...((await killed) ? [] : ['captured'])]).toContain(outcome);
        expect(await run(parent, 'echo on')).toBe('on');
      });
    }

    it('a capture works after all of that, and a revival whose "runsc restore" is killed leaves nothing but the tree', async () => {
      const imageDir = await at.imageDir();
      await captureInstance(at.resources, parent, {
        imageDir,
        goOn: true,
        whileStill: () => at.resources.trees.commit('snapshot', parent.facts.tree),
      });
      for (const waitMs of [0, 60, 120]) {
        const facts = await at.plan('snapshot');
        const reviving = reviveInstance(at.resources, facts, LIMITS, imageDir);
        const killed = killWhen('restore', imageDir, () => true, waitMs);
        const revived = await reviving.catch(() => undefined);
        if (revived) await destroyInstance(at.resources, revived);
        else expect(await killed).toBe(true);
        expect(await at.runtime.list()).not.toContain(facts.name);
        expect(await at.resources.cgroups.list()).not.toContain(facts.name);
        expect(await readdir(join(at.resources.dir, 'instances'))).not.toContain(facts.name);
        expect(processesOf(facts.name)).toEqual([]);
      }
      const child = at.keep(await reviveInstance(at.resources, await at.plan('snapshot'), LIMITS, imageDir));
      expect(await run(child, 'echo on')).toBe('on');
    });
  },
);

function sizeOf(path: string): number {
  return existsSync(path) ? statSync(path).size : 0;
}

/** Kills our own `runsc` of that verb and image. False if it was too quick. */
async function killWhen(verb: string, imageDir: string, due: () => boolean, waitMs = 0): Promise<boolean> {
  const deadline = performance.now() + 30_000;
  let seen = false;
  while (performance.now() < deadline) {
    const pid = processesOf(imageDir, verb)[0];
    if (seen && pid === undefined) return false;
    seen ||= pid !== undefined;
    if (pid !== undefined && due()) {
      if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
      try {
        process.kill(pid, 'SIGKILL');
        return true;
      } catch {
        return false;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return false;
}

/** Processes whose command line has all these words. */
function processesOf(...words: string[]): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
        return words.every((word) => line.some((part) => part.includes(word)));
      } catch {
        return false;
      }
    });
}
