import { CayError, newId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { BucketMounts, Unwritten } from '../../bucket-mounts/bucket-mounts.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { openMountWrites } from './mount-writes.ts';

const id = newId('sbx');
const mount = { type: 'bucket', bucket: 'data', path: '/mnt/data', readOnly: false };
const row = (mounts: object[], state = 'active') =>
  ({ id, state, spec: { mounts } }) as unknown as SandboxRow;
const unwritten = (key: string, failure?: unknown): Unwritten => ({
  bucket: 'data',
  path: '/mnt/data',
  key,
  sizeBytes: 7,
  failure,
});

function opened(left: Unwritten[], { ended = false }: { ended?: boolean } = {}) {
  const facts = {
    sandbox: id,
    bucket: 'data',
    path: '/mnt/data',
    readOnly: false,
    owner: { uid: 0, gid: 0 },
  };
  const given: string[] = [];
  const messages: unknown[] = [];
  const mounts = {
    write: async () => left,
    states: async () => [{ facts, ended, unwritten: left }],
    giveUp: async () => void given.push('up'),
  } as unknown as BucketMounts;
  const records = {
    sandboxes: { update: async (_: string, changes: object) => void messages.push(changes) },
  };
  return { writes: openMountWrites({ records } as never, { mounts }), given, messages };
}

describe('an end of a sandbox with mounts', () => {
  it('is refused with what the bucket lacks', async () => {
    const failure = new CayError('permission_denied', 'The S3 server refuses');
    const left = ['a', 'b', 'c', 'd', 'e'].map((key) => unwritten(key, failure));
    const { writes } = opened(left);
    await expect(writes.write(row([mount]), 'end')).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(
        /"\/mnt\/data\/a", .* and 2 more is not in bucket "data": The S3 server/,
      ),
      details: {
        unwritten: expect.arrayContaining([{ bucket: 'data', path: '/mnt/data', key: 'e', sizeBytes: 7 }]),
      },
      hint: expect.stringContaining('force'),
    });
    await expect(opened([]).writes.write(row([mount]), 'end')).resolves.toBeUndefined();
  });

  it('asks nobody where nothing can be unwritten', async () => {
    const { writes } = opened([unwritten('a')]);
    await writes.write(
      row([
        { ...mount, readOnly: true },
        { type: 'tmpfs', path: '/t' },
      ]),
      'end',
    );
    await writes.write({ id, spec: {} } as never, 'end');
    await openMountWrites({} as never, undefined).write(row([mount]), 'end');
  });

  it('says what a stop has left, in the call and on the sandbox, unless it is forced', async () => {
    const { writes, given, messages } = opened([unwritten('late')], { ended: true });
    await expect(writes.afterStop(row([mount], 'stopped'))).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('"/mnt/data/late" is not in bucket "data"'),
    });
    expect(messages).toEqual([{ message: expect.stringContaining('It was stopped') }]);
    await writes.afterStop(row([mount], 'stopped'), { force: true });
    expect(given).toEqual(['up']);
    await opened([unwritten('open')]).writes.afterStop(row([mount], 'stopped'));
  });

  it('shows each mount with what it lacks, and why', async () => {
    const failure = new Error('no');
    const { writes } = opened([unwritten('a'), unwritten('b', failure)]);
    expect(await writes.states(id)).toEqual([
      {
        bucket: 'data',
        path: '/mnt/data',
        readOnly: false,
        ended: false,
        unwrittenFiles: 2,
        unwrittenBytes: 14,
        error: 'no',
      },
    ]);
  });
});
