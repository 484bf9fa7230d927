/** The warm pool on a real machine: what it hands out, and that a sandbox from it is like any other. */
import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { newId, SandboxSpecSchema, type SandboxId, type SandboxSpecInput } from '@cay/sdk/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { collect } from '../../guest/collect.ts';
import type { Guest } from '../../guest/guest.ts';
import type { LocalBackend } from './local.ts';
import { openLocal } from './open-local.ts';

const reason = whyNoLocal();
const MiB = 1024 * 1024;
let counter = 0;

describe.skipIf(reason !== undefined)(`the warm pool${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let dir: string;
  let backend: LocalBackend;
  const open = () => openLocal({ dir, runtime: 'runc', poolSize: 3 });

  beforeAll(async () => {
    dir = await mkdtemp('/tmp/cay-p-');
    await chmod(dir, 0o711);
    backend = await open();
  });
  afterAll(async () => {
    await backend.destroy();
    await rm(dir, { recursive: true, force: true });
  });
  beforeEach(() => backend.warm());

  const instances = () => readdir(join(dir, 'instances'));
  const instanceOf = async (id: SandboxId) =>
    (JSON.parse(await readFile(join(dir, 'sandboxes', `${id}.json`), 'utf8')) as { instance: string })
      .instance;

  async function create(spec: SandboxSpecInput = {}): Promise<{ id: SandboxId; guest: Guest }> {
    const id = newId('sbx');
    await backend.ensure(id, SandboxSpecSchema.parse({ runtime: 'runc', ...spec }));
    return { id, guest: await backend.connect(id) };
  }

  async function run(guest: Guest, shell: string, user = 'user'): Promise<string> {
    const handle = await guest.exec({ id: `pool-${++counter}`, shell, env: {}, workdir: '/', user });
    const { stdout } = await collect(handle, { maxBytes: 65_536 });
    return Buffer.from(stdout).toString().trim();
  }

  it('hands out an instance that was there already', async () => {
    const before = await instances();
    const { id } = await create();
    expect(before).toContain(await instanceOf(id));
    await backend.remove(id);
  });

  it('never hands the same one out twice, however many ask at once', async () => {
    const made = await Promise.all(Array.from({ length: 8 }, () => create()));
    await Promise.all(made.map(({ guest }, index) => run(guest, `echo ${index} > /tmp/mine`)));
    const seen = await Promise.all(made.map(({ guest }) => run(guest, 'cat /tmp/mine')));
    expect(seen).toEqual(made.map((_, index) => String(index)));
    await Promise.all(made.map(({ id }) => backend.remove(id)));
  });

  it('gives it the limits that were asked for', async () => {
    const { id, guest } = await create({ limits: { memoryBytes: 128 * MiB, pids: 40, diskBytes: 32 * MiB } });
    expect((await backend.stats(id)).memoryLimitBytes).toBe(128 * MiB);
    const greedy = await guest.exec({
      id: `pool-${++counter}`,
      argv: ['tail', '/dev/zero'],
      env: {},
      workdir: '/',
      user: 'user',
    });
    expect((await collect(greedy, { maxBytes: 1024 })).end).toEqual({ kind: 'oom_killed' });
    expect(
      await run(
        guest,
        'head -c 64000000 /dev/zero > /home/user/big 2>/dev/null; test $(stat -c %s /home/user/big) -le 33554432 && echo held',
      ),
    ).toBe('held');
    await backend.remove(id);
  });

  it('leaves no trace of its rehearsal', async () => {
    const { id, guest } = await create();
    expect(await guest.commands()).toEqual([]);
    expect(await run(guest, 'ls -A /home/user /root', 'root')).toBe('/home/user:\n\n/root:');
    await backend.remove(id);
  });

  it('starts the command of the spec in what it hands out', async () => {
    const { id, guest } = await create({
      cmd: ['sh', '-c', 'echo $GREETING > /tmp/said'],
      env: { GREETING: 'hello' },
    });
    await expect.poll(() => run(guest, 'cat /tmp/said')).toBe('hello');
    await backend.remove(id);
  });

  it('does not hand out an instance to whom it does not fit', async () => {
    const before = await instances();
    const { id, guest } = await create({ readOnlyRoot: true });
    expect(before).not.toContain(await instanceOf(id));
    expect(await run(guest, 'touch /etc/x 2>/dev/null || echo refused', 'root')).toBe('refused');
    await backend.remove(id);
  });

  it('is taken up again by the next server, and so are the sandboxes that came from it', async () => {
    const { id, guest } = await create();
    await run(guest, 'echo kept > /tmp/kept');
    await backend.warm();
    const before = await instances();
    await backend.close();
    backend = await open();
    expect(await run(await backend.connect(id), 'cat /tmp/kept')).toBe('kept');
    const another = await create();
    expect(before).toContain(await instanceOf(another.id));
    await backend.remove(another.id);
    await backend.remove(id);
  });
});
