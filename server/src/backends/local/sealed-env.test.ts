import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SandboxSpecSchema, newId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sealedBox } from '../../lib/sealed-box.ts';
import { openSandboxRecords, type SandboxRecord } from './sandbox-record.ts';

const CANARY = 'canary-of-the-engine';
const box = sealedBox(randomBytes(32));

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'cay-records-'));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const record = (): SandboxRecord => ({
  id: newId('sbx'),
  spec: SandboxSpecSchema.parse({ env: { SECRET: CANARY } }),
  phase: 'stopped',
  incarnation: 1,
  runtime: 'runc',
  tree: 'tree',
  frozen: false,
});
const onDisk = (id: string) => readFile(join(dir, `${id}.json`), 'utf8');

describe('the environment in a record on the disk', () => {
  it('is sealed, and read as it was', async () => {
    const made = record();
    await (await openSandboxRecords(dir, box)).save(made);
    expect(await onDisk(made.id)).not.toContain(CANARY);
    expect((await openSandboxRecords(dir, box)).get(made.id)).toEqual(made);
  });

  it('is kept sealed by who does not have the key', async () => {
    const made = record();
    await (await openSandboxRecords(dir, box)).save(made);
    const keyless = await openSandboxRecords(dir);
    expect(keyless.get(made.id)!.spec.env).toEqual({});
    await keyless.save({ ...keyless.get(made.id)!, phase: 'failed' });
    expect((await openSandboxRecords(dir, box)).get(made.id)).toEqual({ ...made, phase: 'failed' });
  });

  it('is not opened with another key, nor in the record of another', async () => {
    const [one, other] = [record(), record()];
    const records = await openSandboxRecords(dir, box);
    await records.save(one);
    await expect(openSandboxRecords(dir, sealedBox(randomBytes(32)))).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    await writeFile(join(dir, `${other.id}.json`), (await onDisk(one.id)).replace(one.id, other.id));
    await expect(openSandboxRecords(dir, box)).rejects.toThrow(
      `Cannot open the environment of "${other.id}"`,
    );
  });

  it('that an earlier version has left in the clear is sealed when it is read', async () => {
    const made = record();
    await mkdir(dir, { recursive: true });
    await writeFile(join(dir, `${made.id}.json`), JSON.stringify(made));
    expect((await openSandboxRecords(dir, box)).get(made.id)).toEqual(made);
    expect(await onDisk(made.id)).not.toContain(CANARY);
  });
});
