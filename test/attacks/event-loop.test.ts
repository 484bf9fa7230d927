import { afterAll, beforeAll, expect, it } from 'vitest';
import { e2bSandbox } from './support/e2b-sandbox.ts';
import { onEachPlatform, requireAbility } from './support/platforms.ts';
import type { Target } from './support/target.ts';
import { SCALE } from './support/scale.ts';
import { watchServer } from './support/watch-server.ts';

/** A loaded machine delays every process now and then; what is attacked here stood still for seconds. */
const LOOP_MS = 1000;
/** With `--suites` 2000 files of 1500 lines, and 100 of 16 MiB. */
const [MANY_TEXTS, MANY_BINARIES] = SCALE === 1 ? [60, 2] : [200 * SCALE, 10 * SCALE];
/** Writes that many files of 1500 lines that have nothing in common with other words', and some of 16 MiB. */
const MANY = `
import os, sys
word, texts, binaries = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.makedirs('/home/user/many', exist_ok=True)
for number in range(texts):
    with open(f'/home/user/many/{number}', 'w') as file:
        file.writelines(f'{word} {number} {line * 7919}\\n' for line in range(1500))
for number in range(binaries):
    with open(f'/home/user/many/b{number}', 'wb') as file:
        file.write(os.urandom(16 << 20))
`;

onEachPlatform('one request that would hold the event loop', (platform) => {
  let target: Target;
  let sandbox: string;
  beforeAll(async () => {
    target = await platform.start();
    sandbox = (await target.alice.create({ env: values(1000) })).id;
  });
  afterAll(() => target?.[Symbol.asyncDispose]());

  const values = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`K${index}`, 'aaaaab']));
  const command = () => ({ argv: Array.from({ length: 48 }, () => 'a'.repeat(131_072)), env: values(1000) });

  it(
    'is masked in bounded time: a command with long arguments and many values',
    { timeout: 60_000 },
    async () => {
      const { loopMs } = await watchServer(target, async () => {
        expect(
          (await target.alice.call('POST', `/v1/sandboxes/${sandbox}/exec`, { body: command() })).status,
        ).toBeGreaterThanOrEqual(400);
        expect(
          (await target.alice.call('POST', `/v1/sandboxes/${sandbox}/commands`, { body: command() })).status,
        ).toBeGreaterThanOrEqual(400);
        // One that runs is noted with its arguments.
        const body = {
          argv: ['echo', ...Array.from({ length: 60 }, () => 'a'.repeat(16_000))],
          env: values(1000),
        };
        expect((await target.alice.call('POST', `/v1/sandboxes/${sandbox}/exec`, { body })).status).toBe(200);
      });
      expect(loopMs).toBeLessThan(LOOP_MS);
    },
  );

  it('is masked in bounded time over a WebSocket and through E2B', { timeout: 60_000 }, async () => {
    const made = await e2bSandbox(target);
    const { loopMs } = await watchServer(target, async () => {
      const socket = new WebSocket(`${target.url.replace('http', 'ws')}/v1/sandboxes/${sandbox}/exec`, [
        `cay.key.${target.alice.key}`,
        'cay',
      ]);
      await new Promise((resolve) => socket.addEventListener('open', resolve));
      const over = new Promise((resolve) => socket.addEventListener('close', resolve));
      socket.send(JSON.stringify({ type: 'start', ...command(), argv: command().argv.slice(0, 24) }));
      await Promise.race([over, new Promise((resolve) => setTimeout(resolve, 2000))]);
      socket.close();
      const json = Buffer.from(
        JSON.stringify({ process: { cmd: 'true', args: command().argv, envs: values(1000) } }),
      );
      const head = Buffer.alloc(5);
      head.writeUInt32BE(json.length, 1);
      await target.stranger('POST', '/process.Process/Start', {
        body: Buffer.concat([head, json]),
        headers: { ...made.headers, 'content-type': 'application/connect+json' },
      });
    });
    expect(loopMs).toBeLessThan(LOOP_MS);
  });

  it('is refused before it is parsed: a body of a million values', async () => {
    const { loopMs, grownBytes } = await watchServer(target, async () => {
      const body = `{"argv":[${'[],'.repeat(5_000_000)}[]]}`;
      const reply = await target.alice.call('POST', `/v1/sandboxes/${sandbox}/exec`, {
        body,
        headers: { 'content-type': 'application/json' },
      });
      expect(reply.json.error).toMatchObject({
        code: 'invalid_argument',
        message: expect.stringContaining('values'),
      });
    });
    expect(loopMs).toBeLessThan(LOOP_MS);
    expect(grownBytes).toBeLessThan(200 * 1024 ** 2);
  });

  it(
    'is compared in a thread: texts that have nothing in common, and bytes that are no text',
    { timeout: 120_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      const { id } = await target.alice.create();
      const put = (path: string, body: string | Uint8Array) =>
        target.alice.call('PUT', `/v1/sandboxes/${id}/files?path=${path}`, { body });
      const text = (word: string) =>
        Array.from({ length: 1500 }, (_, line) => `${word} ${line * 7919}\n`).join('');
      const bytes = (seed: number) =>
        Buffer.from(Array.from({ length: 256 }, (_, index) => (index * seed) % 256))
          .toString('latin1')
          .repeat(16_384);
      for (let file = 0; file < 10; file++) await put(`/tmp/work/${file}`, text(`old${file}`));
      for (let file = 0; file < 2; file++)
        await put(`/tmp/work/binary${file}`, Buffer.from(bytes(3), 'latin1'));
      await target.alice.call('POST', `/v1/sandboxes/${id}/turns`, { body: {} });
      for (let file = 0; file < 10; file++) await put(`/tmp/work/${file}`, text(`new${file}`));
      for (let file = 0; file < 2; file++)
        await put(`/tmp/work/binary${file}`, Buffer.from(bytes(5), 'latin1'));
      const { loopMs } = await watchServer(target, async () => {
        const stat = await target.alice.call('GET', `/v1/sandboxes/${id}/diff?format=stat&from=1`);
        expect(stat.json).toMatchObject({ insertions: 15_000, deletions: 15_000 });
        const patch = await target.alice.call('GET', `/v1/sandboxes/${id}/diff?format=patch&from=1`);
        expect(patch.text).toContain('GIT binary patch');
      });
      expect(loopMs).toBeLessThan(LOOP_MS);
      await target.requireAlive();
    },
  );

  it(
    'is compared within bounds: very many changed files, and large ones',
    { timeout: 600_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      const diskBytes = target.lacks('diskLimit') === undefined ? 8 * 1024 ** 3 : null;
      const { id } = await target.alice.create({ limits: { diskBytes } });
      const fill = (word: string) =>
        target.alice.exec(id, ['python3', '-c', MANY, word, String(MANY_TEXTS), String(MANY_BINARIES)], {
          timeoutMs: 300_000,
        });
      await fill('old');
      await target.alice.call('POST', `/v1/sandboxes/${id}/turns`, { body: {} });
      await fill('new');
      for (const format of ['stat', 'patch']) {
        const { loopMs, grownBytes } = await watchServer(target, async () => {
          const answer = await fetch(`${target.url}/v1/sandboxes/${id}/diff?format=${format}&from=1`, {
            headers: { authorization: `Bearer ${target.alice.key}` },
          });
          expect(answer.status).toBeLessThan(500);
          // It is read as it comes, and not kept.
          for await (const _piece of answer.body ?? []);
        });
        expect(loopMs).toBeLessThan(LOOP_MS);
        expect(grownBytes).toBeLessThan(700 * 1024 ** 2);
      }
      await target.requireAlive();
      await target.alice.call('DELETE', `/v1/sandboxes/${id}`);
    },
  );

  it('leaves no thread busy when the caller goes away', { timeout: 60_000 }, async (context) => {
    requireAbility(context, target, 'snapshots');
    const { id } = await target.alice.create();
    const put = (path: string, body: string) =>
      target.alice.call('PUT', `/v1/sandboxes/${id}/files?path=${path}`, { body });
    for (let file = 0; file < 8; file++)
      await put(`/tmp/work/${file}`, Array.from({ length: 1500 }, (_, line) => `${file} ${line}\n`).join(''));
    await target.alice.call('POST', `/v1/sandboxes/${id}/turns`, { body: {} });
    for (let file = 0; file < 8; file++)
      await put(
        `/tmp/work/${file}`,
        Array.from({ length: 1500 }, (_, line) => `x${file} ${line}\n`).join(''),
      );
    // More than may be under way at once: those that wait are given up with their callers, and leave their
    // places.
    const calls = Array.from({ length: 12 }, () =>
      target.alice
        .call('GET', `/v1/sandboxes/${id}/diff?format=stat&from=1`, { signal: AbortSignal.timeout(300) })
        .catch(() => undefined),
    );
    await Promise.all(calls);
    expect((await target.alice.call('GET', `/v1/sandboxes/${id}/diff?format=stat&from=1`)).status).toBe(200);
  });
});
