import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CayError, newId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { BucketMountFacts, BucketOpening } from './bucket-mounts.ts';
import { LEFT, openLeftWrites, type LeftWrites } from './left-writes.ts';
import { openMountTable, writeFacts, type MountTable } from './mount-table.ts';
import { openOrProbe, PROBE_BUCKET, probeBucket } from './probe-bucket.ts';
import { surveyMount } from './survey.ts';
import { memoryBucket } from './testing/memory-bucket.ts';
import { mkdirSync } from 'node:fs';

const sandbox = newId('sbx');
let dir: string;
let table: MountTable;
let left: LeftWrites;
let failures: { key: string; lost: boolean }[];
let errors: unknown[];
const bucket = memoryBucket();
const bounds = { project: 'p', requireMount() {}, requireBytes() {} };
const opening: BucketOpening = {};

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'cay-left-'));
  failures = [];
  errors = [];
  bucket.objects.clear();
  bucket.fault = () => undefined;
  opening.source = {
    open: async () => ({ bucket, readOnly: false, bounds }),
    failed: (_, { key, lost }) => void failures.push({ key, lost }),
  };
  const onError = (error: unknown) => void errors.push(error);
  table = openMountTable({ dir, opening, mostSpooled: 1e6, onError, isClosed: () => false });
  left = openLeftWrites({ dir, opening, table, onError, firstMs: 1e9 });
});
afterEach(async () => {
  left.close();
  for (const id of table.mounts.keys()) await table.drop(id);
  rmSync(dir, { recursive: true, force: true });
  expect(errors).toEqual([]);
});

const away = () => {
  throw new CayError('unavailable', 'It is away');
};

/** A mount that has ended, and has left a file. */
async function leave(name: string, of = 'data'): Promise<void> {
  const directory = join(dir, 'm', name);
  mkdirSync(directory, { recursive: true });
  const facts: BucketMountFacts = {
    sandbox,
    bucket: of,
    path: '/mnt',
    readOnly: false,
    owner: { uid: 0, gid: 0 },
  };
  await writeFacts(directory, facts);
  const { files } = await table.mountOf(`m/${name}`);
  const { attributes } = await files.open.create(1, name, 1);
  await files.open.write(attributes.node, Buffer.from(name), 0);
  // It is surveyed also while a server has it.
  expect(await surveyMount(directory)).toEqual([
    { bucket: of, path: '/mnt', key: name, sizeBytes: name.length },
  ]);
  await table.drop(`m/${name}`);
  await left.keep(directory);
}

const kept = () => readdirSync(join(dir, LEFT));

describe('what instances have left', () => {
  it('is written as soon as the bucket takes it', async () => {
    await leave('file');
    bucket.fault = away;
    const unwritten = await left.write(sandbox, 1_000);
    expect(unwritten).toMatchObject([{ key: 'file', sizeBytes: 4, failure: { code: 'unavailable' } }]);
    expect(await left.states(sandbox)).toMatchObject([{ ended: true, unwritten }]);
    expect(kept().length).toBe(1);
    bucket.fault = () => undefined;
    expect(await left.write(sandbox, 1_000)).toEqual([]);
    expect(bucket.text('file')).toBe('file');
    expect(kept()).toEqual([]);
    expect(failures).toEqual([]);
  });

  it('is not waited for longer than asked, and goes on', async () => {
    await leave('file');
    const slow = Promise.withResolvers<undefined>();
    bucket.fault = () => slow.promise;
    expect(await left.write(sandbox, 20)).toMatchObject([{ key: 'file' }]);
    slow.resolve(undefined);
    expect(await left.write(sandbox, 5_000)).toEqual([]);
    expect(bucket.text('file')).toBe('file');
  });

  it('is lost when it is given up, and said to be', async () => {
    await leave('one');
    await leave('two');
    bucket.fault = away;
    await left.giveUp(newId('sbx'));
    expect(kept().length).toBe(2);
    await left.giveUp(sandbox);
    expect(kept()).toEqual([]);
    expect(failures.map(({ key }) => key).sort()).toEqual(['one', 'two']);
    expect(failures.every(({ lost }) => lost)).toBe(true);
    expect(table.shareOf('p')).toBeUndefined();
  });

  it('is kept while the bucket cannot be opened', async () => {
    await leave('file');
    opening.source!.open = async () => {
      throw new CayError('failed_precondition', 'The secret is gone');
    };
    expect(await left.write(sandbox, 1_000)).toMatchObject([
      { key: 'file', failure: { code: 'failed_precondition' } },
    ]);
    expect(kept().length).toBe(1);
  });
});

describe('what two projects have left', () => {
  it('is tried for each by itself: a bucket that never answers holds up no other', async () => {
    const never = memoryBucket();
    never.fault = (call) => (call === 'put' ? new Promise(() => {}) : undefined);
    opening.source!.open = async ({ bucket: name }) =>
      name === 'slow'
        ? { bucket: never, readOnly: false, bounds: { ...bounds, project: 'slow' } }
        : { bucket, readOnly: false, bounds };
    for (let count = 0; count < 20; count++) await leave(`slow${count}`, 'slow');
    await leave('file');
    const trying = openLeftWrites({
      dir,
      opening,
      table,
      onError: (error) => void errors.push(error),
      firstMs: 1,
    });
    await vi.waitFor(() => expect(bucket.text('file')).toBe('file'), { timeout: 5_000 });
    trying.close();
    expect(kept().length).toBe(20);
  });

  it('is bounded for each, in mounts and files', async () => {
    for (let count = 0; count < 3; count++) await leave(`f${count}`);
    await left.requireRoom('p');
    const [name] = kept();
    for (let count = 0; count < 16_384; count++)
      writeFileSync(join(dir, LEFT, name!, 'spool', `${count + 1000}`), '');
    await expect(left.requireRoom('p')).rejects.toMatchObject({ code: 'resource_exhausted' });
    await left.requireRoom('other');
  });
});

describe('a project', () => {
  it('has as many mounts as its quota says, and counts what is written', async () => {
    const refused = new CayError('resource_exhausted', 'Too many', { details: { quota: 'bucketMounts' } });
    bounds.requireMount = ((open: number) => {
      if (open >= 1) throw refused;
    }) as () => void;
    const directory = (name: string) => {
      mkdirSync(join(dir, name), { recursive: true });
      return writeFacts(join(dir, name), {
        sandbox,
        bucket: 'data',
        path: `/mnt/${name}`,
        readOnly: false,
        owner: { uid: 0, gid: 0 },
      });
    };
    await Promise.all([directory('one'), directory('two')]);
    const asked = await Promise.allSettled(['one', 'two'].map((id) => table.mountOf(id, { isNew: true })));
    // Whichever came first has the one mount that there may be.
    expect(asked.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    const first = asked[0]!.status === 'fulfilled' ? 'one' : 'two';
    expect(asked.find(({ status }) => status === 'rejected')).toMatchObject({ reason: refused });
    const { files } = await table.mountOf(first);
    const { attributes } = await files.open.create(1, 'a', 1);
    await files.open.write(attributes.node, Buffer.alloc(1_000), 0);
    expect(table.shareOf('p')).toMatchObject({ mounts: 1, bytes: 1_000 });
    await table.drop(first);
    expect(table.shareOf('p')).toBeUndefined();
    bounds.requireMount = () => {};
  });
});

describe('the bucket of probes', () => {
  const facts = { sandbox, bucket: PROBE_BUCKET, path: '/', readOnly: false, owner: { uid: 0, gid: 0 } };

  it('is for those alone who are in no record', async () => {
    const own = await openOrProbe(opening.source, facts);
    expect(own.bucket).toBe(bucket);
    const none = {
      ...opening.source!,
      open: async () => Promise.reject(new CayError('not_found', 'No such sandbox')),
    };
    expect((await openOrProbe(none, facts)).bucket).not.toBe(bucket);
    await expect(openOrProbe(none, { ...facts, bucket: 'data' })).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(openOrProbe(undefined, { ...facts, bucket: 'data' })).rejects.toMatchObject({
      code: 'unavailable',
    });
  });

  it('takes no more than some bytes', async () => {
    const probe = probeBucket();
    const much = async function* () {
      yield Buffer.alloc(100_000);
    };
    await expect(probe.put('a', much())).rejects.toMatchObject({ code: 'resource_exhausted' });
  });
});
