/** Idle sandboxes of an older gVisor, which uses the processor while nothing runs in it. */
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { collect } from '../../guest/collect.ts';
import type { LocalBackend } from './local.ts';
import { openLocal } from './open-local.ts';

const DEBIANS = '/usr/bin/runsc';
/** Versions since then park themselves. */
const FRUGAL_SINCE = 2026;

function whyNot(): string | undefined {
  if (!existsSync(DEBIANS)) return `there is no ${DEBIANS}`;
  const version = execFileSync(DEBIANS, ['--version'], { encoding: 'utf8' });
  const year = Number(/(20\d\d)\d{4}/.exec(version)?.[1] ?? FRUGAL_SINCE);
  if (year >= FRUGAL_SINCE) return `${DEBIANS} is of ${year} and uses no processor while idle`;
  return whyNoLocal();
}

const reason = whyNot();

describe.skipIf(reason !== undefined)(`idle sandboxes${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let dir: string;
  let backend: LocalBackend;
  let count = 0;
  const spec = SandboxSpecSchema.parse({ runtime: 'runsc', limits: { memoryBytes: 256 << 20 } });
  const open = () => openLocal({ dir, runtime: 'runsc', runsc: DEBIANS });

  beforeAll(async () => {
    dir = await mkdtemp('/tmp/cay-parking-');
    await chmod(dir, 0o711);
    backend = await open();
  });
  afterAll(async () => {
    await backend.destroy();
    await rm(dir, { recursive: true, force: true });
  });

  async function create(): Promise<SandboxId> {
    const id = newId('sbx');
    await backend.ensure(id, spec);
    return id;
  }

  async function run(id: SandboxId, shell: string): Promise<string> {
    const guest = await backend.connect(id);
    const handle = await guest.exec({ id: `p${++count}`, shell, env: {}, workdir: '/', user: 'user' });
    const { stdout } = await collect(handle, { maxBytes: 65_536 });
    return Buffer.from(stdout).toString().trim();
  }

  const usedMs = async (id: SandboxId) => (await backend.stats(id)).cpuUsageMs!;
  const usedIn = async (id: SandboxId, ms: number) => {
    const before = await usedMs(id);
    await sleep(ms);
    return (await usedMs(id)) - before;
  };
  /** Less than a tick of the kernel for each second. */
  const rests = (id: SandboxId) =>
    expect.poll(() => usedIn(id, 1_000), { timeout: 20_000, interval: 100 }).toBeLessThan(5);

  it('use no processor, and answer at once', async () => {
    const id = await create();
    await run(id, 'echo kept > /home/user/file');
    await rests(id);
    expect(await usedIn(id, 3_000)).toBeLessThan(5);
    expect(await backend.stats(id)).toMatchObject({ pids: 0 });
    const begun = performance.now();
    expect(await run(id, 'cat /home/user/file')).toBe('kept');
    expect(performance.now() - begun).toBeLessThan(1_000);
    await backend.remove(id);
  });

  it('are not stopped while a process runs in them', async () => {
    const id = await create();
    // A file that is replaced is never read empty.
    const replace = 'date +%s%N > /tmp/next && mv /tmp/next /tmp/alive';
    await run(id, `(while sleep 0.1; do ${replace}; done) >/dev/null 2>&1 &`);
    await sleep(6_000);
    const first = await run(id, 'cat /tmp/alive');
    await sleep(4_500);
    const lag = Number(await run(id, 'echo $(( $(date +%s%N) - $(cat /tmp/alive) ))'));
    expect(first).toMatch(/^\d+$/);
    expect(lag).toBeLessThan(1e9);
    await backend.remove(id);
  });

  it('are frozen, thawed, hibernated, woken and removed like any other', async () => {
    const id = await create();
    await rests(id);
    await backend.freeze(id);
    await backend.thaw(id);
    expect(await run(id, 'echo thawed')).toBe('thawed');
    await rests(id);
    await backend.hibernate(id);
    await backend.ensure(id, spec);
    expect(await run(id, 'echo awake')).toBe('awake');
    await rests(id);
    await backend.stop(id, { graceMs: 100 });
    await backend.ensure(id, spec);
    expect(await run(id, 'echo started')).toBe('started');
    await rests(id);
    await backend.remove(id);
  });

  it('stay frozen when a user has frozen them', async () => {
    const id = await create();
    await rests(id);
    await backend.freeze(id);
    // Asking a frozen sandbox sends frames to its guest.
    await Promise.race([run(id, 'true').catch(() => {}), sleep(500)]);
    expect(await freezerOf(id)).toMatch(/FROZEN|^1/);
    await backend.thaw(id);
    await backend.remove(id);
  });

  it('are taken over by the next server', async () => {
    const id = await create();
    await run(id, 'echo kept > /tmp/file');
    await rests(id);
    await backend.close();
    backend = await open();
    expect(await run(id, 'cat /tmp/file')).toBe('kept');
    await backend.remove(id);
  });

  async function freezerOf(id: SandboxId): Promise<string> {
    const { instance } = JSON.parse(await readFile(join(dir, 'sandboxes', `${id}.json`), 'utf8')) as {
      instance: string;
    };
    const find = ['-path', `*/${instance}/freezer.state`, '-o', '-path', `*/${instance}/cgroup.freeze`];
    const [file] = execFileSync('find', ['/sys/fs/cgroup', ...find], { encoding: 'utf8' }).split('\n');
    return (await readFile(file!, 'utf8')).trim();
  }
});
