/** What a tenant can ask of the API with a key of its own. */
import { again, type Assault } from './assault.ts';

const MiB = 1024 ** 2;
const TREE = `
import os
deep = '/tmp/deep'
for _ in range(15):
    deep += '/' + 'd' * 200
os.makedirs(deep)
for number in range(5000):
    open(f'{deep}/{number}', 'w').close()
`;
const LINES = `
import os, random, sys
os.makedirs('/tmp/texts', exist_ok=True)
for number in range(200):
    with open(f'/tmp/texts/{number}', 'w') as file:
        file.writelines(f'{sys.argv[1]} {random.random()}\\n' for _ in range(1500))
`;

const outputs: Assault = {
  name: 'large outputs',
  async open({ alice }) {
    const { id } = await alice.create();
    // As much as is allowed.
    let most = 64 * MiB;
    const body = () => ({ argv: ['head', '-c', String(most), '/dev/zero'], maxOutputBytes: most });
    while (
      most > MiB &&
      (await alice.call('POST', `/v1/sandboxes/${id}/exec`, { body: body() })).status === 400
    )
      most /= 2;
    return {
      run: (signal, done) =>
        again(4, signal, async () => {
          await alice.call('POST', `/v1/sandboxes/${id}/exec`, { body: body(), signal });
          done();
        }),
    };
  },
};

const listings: Assault = {
  name: 'deep listings',
  async open({ alice }) {
    const { id } = await alice.create();
    await alice.exec(id, ['python3', '-c', TREE]);
    return {
      run: (signal, done) =>
        again(4, signal, async () => {
          await alice.call('GET', `/v1/sandboxes/${id}/files/list?path=/tmp/deep&depth=1000`, { signal });
          done();
        }),
    };
  },
};

const diffs: Assault = {
  name: 'diffs',
  async open({ alice }) {
    const { id } = await alice.create();
    await alice.exec(id, ['python3', '-c', LINES, 'before']);
    const { json } = await alice.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
    await alice.exec(id, ['python3', '-c', LINES, 'after']);
    const from = (json as { id: string }).id;
    return {
      run: (signal, done) =>
        again(2, signal, async () => {
          await alice.call('GET', `/v1/sandboxes/${id}/diff?from=${from}&format=stat`, { signal });
          done();
        }),
    };
  },
};

const masks: Assault = {
  name: 'command lines to mask',
  async open({ alice }) {
    const env = Object.fromEntries(Array.from({ length: 1000 }, (_, number) => [`NAME_${number}`, 'aaaaab']));
    const { id } = await alice.create({ env });
    const argv = Array.from({ length: 48 }, () => 'a'.repeat(128 * 1024 - 1));
    return {
      run: (signal, done) =>
        again(1, signal, async () => {
          await alice.call('POST', `/v1/sandboxes/${id}/exec`, {
            body: { argv: ['true', ...argv], env },
            signal,
          });
          done();
        }),
    };
  },
};

const snapshots: Assault = {
  name: 'snapshots',
  async open({ alice }) {
    const { id } = await alice.create();
    await alice.exec(id, ['python3', '-c', LINES, 'text']);
    return {
      run: (signal, done) =>
        again(2, signal, async () => {
          const { json } = await alice.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {}, signal });
          await alice.call('DELETE', `/v1/snapshots/${(json as { id: string }).id}`, { signal });
          done();
        }),
    };
  },
};

const creations: Assault = {
  name: 'creations and removals',
  open: async ({ alice }) => ({
    run: (signal, done) =>
      again(4, signal, async () => {
        const { id } = await alice.create();
        await alice.call('DELETE', `/v1/sandboxes/${id}`);
        done();
      }),
  }),
};

const badRequests: Assault = {
  name: 'bad requests with a key',
  open: async ({ alice }) => ({
    run: (signal, done) =>
      again(16, signal, async () => {
        await alice.call('POST', '/v1/sandboxes', {
          body: { limits: { cpus: 'many' }, labels: { a: 'x'.repeat(900_000) } },
          signal,
        });
        done();
      }),
  }),
};

export const BY_TENANTS: readonly Assault[] = [
  outputs,
  listings,
  diffs,
  masks,
  snapshots,
  creations,
  badRequests,
];
