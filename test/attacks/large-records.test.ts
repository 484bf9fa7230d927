/**
 * A tenant has much recorded that is small for each request: environments of sandboxes, and how templates are
 * run. Lists, and a server that starts, read all of it, so that it is bounded for the project.
 *
 * Runs on the memory backend alone: it is about records.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTarget, type Target } from './support/target.ts';
import { watchServer } from './support/watch-server.ts';

const MiB = 1024 ** 2;
const LONG = 'x'.repeat(120_000);
/** As much as a request may have. */
const env = Object.fromEntries(Array.from({ length: 8 }, (_, at) => [`A${at}`, LONG]));

describe('a tenant', () => {
  let target: Target;
  beforeAll(async () => {
    target = await startTarget({ backend: 'memory' });
  }, 60_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  it('with a long environment in every sandbox is refused before long', { timeout: 120_000 }, async () => {
    const { alice, bob } = target;
    let made = 0;
    let code: string | undefined;
    for (; made < 300 && code === undefined; made++) {
      const { status, json } = await alice.call('POST', '/v1/sandboxes', { body: { env } });
      if (status !== 201) code = json.error.code;
    }
    expect(code).toBe('resource_exhausted');
    expect(made).toBeLessThan(150);
    const { slowestMs, grownBytes } = await watchServer(target, async () => {
      const { status } = await alice.call('GET', '/v1/sandboxes?limit=1000');
      expect(status).toBe(200);
    });
    expect(slowestMs).toBeLessThan(2000);
    expect(grownBytes).toBeLessThan(800 * MiB);
    // Nor by labels and policies of those that are there.
    const { id } = await alice.create();
    const allow = Array.from({ length: 900 }, (_, at) => ({
      to: `${at}.${LONG.slice(0, 60)}.org`,
      paths: [`/${LONG.slice(0, 900)}`],
    }));
    const changed = await alice.call('PUT', `/v1/sandboxes/${id}/network`, { body: { policy: { allow } } });
    expect(changed.json?.error?.code, changed.text.slice(0, 300)).toBe('resource_exhausted');
    // Others, and its own short ones, go on.
    await bob.create({ env: { A: LONG } });
    await alice.create({ env: { A: 'short' } });
  });

  it('with a long configuration in every template is refused before long', { timeout: 120_000 }, async () => {
    const { bob } = target;
    const { id } = await bob.create();
    const taken = await bob.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
    const config = {
      ...{ env, user: '', workdir: '', entrypoint: [], cmd: [], shell: [], exposed: [], volumes: [] },
      ...{ labels: {}, stopSignal: '', healthcheck: null, onBuild: [] },
    };
    let saved = 0;
    let code: string | undefined;
    for (; saved < 100 && code === undefined; saved++) {
      const { status, json } = await bob.call('PUT', `/v1/templates/t${saved}`, {
        body: { snapshot: taken.json.id, config },
      });
      if (status >= 300) code = json.error.code;
    }
    expect(code).toBe('resource_exhausted');
    expect(saved).toBeLessThan(40);
    // One that is there can still be replaced.
    const again = await bob.call('PUT', '/v1/templates/t0', {
      body: { snapshot: taken.json.id, config, replace: true },
    });
    expect(again.status, again.text.slice(0, 300)).toBeLessThan(300);
    expect((await bob.call('GET', '/v1/templates')).status).toBe(200);
    await target.requireAlive();
  });
});
