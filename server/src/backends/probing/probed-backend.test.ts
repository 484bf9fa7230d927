import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CayError, newId, SandboxSpecSchema, type RuntimeProbe } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { memoryBackend, type MemoryBackend } from '../memory/memory.ts';
import { probedBackend, type Probeable } from './probed-backend.ts';

let dir: string;
let file: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'cay-probes-'));
  file = join(dir, 'probes.json');
});
afterEach(() => rmSync(dir, { recursive: true }));

type Probed = MemoryBackend & Probeable & { destroy(): Promise<void> };

/** The memory backend as one that can be probed; `made` counts its sandboxes. */
function probeable(inner: MemoryBackend, fingerprint = 'one'): Probed & { made: string[] } {
  const made: string[] = [];
  const backend = {
    ...inner,
    made,
    defaultRuntime: async () => 'memory',
    wired: async () => (await inner.capabilities()).abilities,
    fingerprint: async () => fingerprint,
    ensure(...call: Parameters<MemoryBackend['ensure']>) {
      if (!made.includes(call[0])) made.push(call[0]);
      return inner.ensure(...call);
    },
    destroy: () => inner.close(),
  };
  return backend;
}

const probeOf = (backend: { capabilities: MemoryBackend['capabilities'] }) =>
  backend.capabilities().then(({ probes }) => probes![0] as RuntimeProbe);

describe('a probed backend', () => {
  it('reports what is wired as pending until it was tried, and then what was seen', async () => {
    const backend = await probedBackend(probeable(memoryBackend()), { file, delayMs: 50 });
    expect(await probeOf(backend)).toMatchObject({ runtime: 'memory', state: 'pending', verified: {} });
    await backend.probed;
    const probe = await probeOf(backend);
    expect(probe).toMatchObject({ state: 'done', verified: { tar: true, freeze: true } });
    expect(probe.verified).not.toHaveProperty('survivesRestart');
    await backend.close();
  });

  it('says that an ability is missing that was seen to fail, and why, and tries it again', async () => {
    const lame = memoryBackend();
    const freeze = async () => {
      throw new CayError('internal', 'the freezer is broken');
    };
    const first = await probedBackend(probeable({ ...lame, freeze }), { file, delayMs: 0 });
    await first.probed;
    const { abilities, notes } = await first.capabilities();
    expect(abilities.freeze).toBe(false);
    expect(notes.freeze).toContain('the freezer is broken');
    await first.close();
    const second = await probedBackend(probeable(memoryBackend()), { file, delayMs: 0 });
    await second.probed;
    expect((await second.capabilities()).abilities.freeze).toBe(true);
    await second.close();
  });

  it('tries nothing again as long as its fingerprint is the same and everything worked', async () => {
    // The simulated sandbox enforces fewer limits than it is tried with, so only those that work are wired.
    const inner = () => {
      const backend = probeable(memoryBackend());
      return Object.assign(backend, {
        wired: async () => ({ ...(await backend.capabilities()).abilities, ...UNTRIED }),
      });
    };
    const first = await probedBackend(inner(), { file, delayMs: 0 });
    await first.probed;
    expect(await probeOf(first)).toMatchObject({ state: 'done', notes: {} });
    await first.close();
    const again = inner();
    const second = await probedBackend(again, { file, delayMs: 0 });
    await second.probed;
    expect(again.made).toEqual([]);
    expect(await probeOf(second)).toMatchObject({ state: 'done' });
    await second.close();
  });

  it('shows no sandbox of a probe, and removes one that a killed server left', async () => {
    const inner = memoryBackend();
    const left = newId('sbx');
    await inner.ensure(left, SandboxSpecSchema.parse({}));
    writeFileSync(file, JSON.stringify({ findings: {}, sandboxes: [left] }));
    const backend = await probedBackend(probeable(inner), { file, delayMs: 20 });
    expect(await backend.list()).toEqual([]);
    const changes = backend.watch();
    await backend.probed;
    expect((await inner.list()).map(({ id }) => id)).toEqual([]);
    const own = newId('sbx');
    await backend.ensure(own, SandboxSpecSchema.parse({}));
    for await (const observed of changes) {
      expect(observed.id).toBe(own);
      break;
    }
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ sandboxes: [] });
    await backend.close();
  });

  it('reports that no sandbox starts, with the reason', async () => {
    const broken = probeable(memoryBackend());
    const ensure = async () => {
      throw new CayError('unavailable', 'the runtime is broken');
    };
    const backend = await probedBackend({ ...broken, ensure }, { file, delayMs: 0 });
    await backend.probed;
    expect(await probeOf(backend)).toMatchObject({ state: 'failed', reason: 'the runtime is broken' });
    await backend.close();
  });
});

const UNTRIED = {
  pty: false,
  signals: false,
  treeKill: false,
  users: false,
  openFilesLimit: false,
  ports: false,
  diskLimit: false,
  pidsLimit: false,
  memoryLimit: false,
  readOnlyRoot: false,
};
