/**
 * A server that is killed while it changes the limits of a sandbox leaves one figure everywhere: in its
 * records, in the kernel, in the quota.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox, Stats } from '@cay/sdk';
import { whyNoLocal } from '../support/local-platform.ts';
import { openInstallation, type Installation } from './model/installation.ts';

const MiB = 1024 * 1024;
const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(
  `a change of limits that is cut short${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let installation: Installation;
    let box: string;
    beforeAll(async () => {
      installation = await openInstallation('runc', { env: { CAY_POOL: '0' } });
      await installation.start();
      box = `/v1/sandboxes/${(await call<Sandbox>('POST', '/v1/sandboxes', { limits: { memoryBytes: 256 * MiB, diskBytes: 256 * MiB } })).id}`;
    });
    afterAll(() => installation.destroy());

    async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
      const outcome = await installation.client.call<T>(method, path, { body });
      if ('done' in outcome) return outcome.done;
      throw new Error(JSON.stringify(outcome));
    }

    const readJson = <T>(file: string) =>
      JSON.parse(readFileSync(join(installation.engineDir, file), 'utf8')) as T;
    /** As the kernel has it. */
    function memoryLimit(instance: string): number {
      const { name } = readJson<{ name: string }>('installation.json');
      const files = [
        `memory/cay-${name}/${instance}/memory.limit_in_bytes`,
        `cay-${name}/${instance}/memory.max`,
      ];
      return Number(
        readFileSync(
          files.map((file) => join('/sys/fs/cgroup', file)).find((file) => existsSync(file))!,
          'utf8',
        ),
      );
    }

    let asked = 256 * MiB;
    it.each(['control.resize.recorded', 'local.resize.limited', 'control.resize.done'])(
      'at %s is done by the next server',
      async (point) => {
        asked += 64 * MiB;
        installation.arm({ [point]: 'kill' });
        const limits = { memoryBytes: asked, diskBytes: asked };
        expect(await installation.client.call('PATCH', box, { body: { limits } })).toHaveProperty('unknown');
        await installation.kill('SIGKILL');
        await installation.start();
        const shown = await call<{ state: string; limits: typeof limits }>('GET', box);
        expect(shown).toMatchObject({ state: 'active', limits });
        const stats = await call<Stats>('GET', `${box}/stats`);
        expect(stats).toMatchObject({ memoryLimitBytes: asked, diskLimitBytes: asked });
        const id = box.split('/').at(-1)!;
        const kept = readJson<{ spec: { limits: unknown }; instance: string }>(
          join('sandboxes', `${id}.json`),
        );
        expect(kept.spec.limits).toMatchObject(limits);
        expect(memoryLimit(kept.instance)).toBe(asked);
      },
      60_000,
    );
  },
);
