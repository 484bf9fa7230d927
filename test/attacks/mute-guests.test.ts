/** Code in a sandbox makes its guest mute: the server and its other tenants do not wait for it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { insideEachPlatform } from './support/platforms.ts';
import type { Target } from './support/target.ts';

/** Without descriptors the guest takes no connection any more, and dials none. */
const MUTE = 'import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))';
/** A guest is waited for that long. */
const DIAL_MS = 5_000;

insideEachPlatform('code that makes the guest of its sandbox mute', (platform) => {
  let target: Target;
  beforeAll(async () => {
    target = await platform.start();
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose]());

  it('keeps no caller waiting for ever, and a neighbour not at all', async () => {
    const { alice, bob } = target;
    const [mute, other] = await Promise.all([alice.create(), bob.create()]);
    await alice.exec(mute.id, ['python3', '-c', MUTE], { user: 'root' });
    const [answer, neighbour] = await Promise.all([
      alice.call('POST', `/v1/sandboxes/${mute.id}/exec`, {
        body: { argv: ['true'], timeoutMs: 1000 },
        signal: AbortSignal.timeout(30_000),
      }),
      bob.exec(other.id, ['echo', 'here']),
    ]);
    expect(answer.status).toBeLessThan(600);
    expect(neighbour.stdout).toBe('here\n');
    for (const [tenant, { id }] of [
      [alice, mute],
      [bob, other],
    ] as const)
      expect((await tenant.call('DELETE', `/v1/sandboxes/${id}`)).status).toBeLessThan(300);
    await target.requireAlive();
  });

  it('does not keep the next server from staying up', async () => {
    const { alice, url } = target;
    const sandbox = await Sandbox.create({ apiKey: alice.key, apiUrl: url, sandboxUrl: url });
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    await sandbox.commands.run(`python3 -c '${MUTE}'`, { user: 'root' });
    const logged = target.log().length;
    await target.restart();
    await sleep(DIAL_MS + 2_000);
    expect(target.log().slice(logged)).not.toMatch(/unhandled|uncaught/i);
    await target.requireAlive();
    const { id } = await target.bob.create();
    expect((await target.bob.exec(id, ['echo', 'here'])).stdout).toBe('here\n');
  });
});
