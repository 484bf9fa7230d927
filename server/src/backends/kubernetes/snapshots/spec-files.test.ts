import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { expect, it } from 'vitest';
import { sealedBox } from '../../../lib/sealed-box.ts';
import { hashOf } from '../../support/spec-hash.ts';
import { specFiles } from './spec-files.ts';

const fail = (error: unknown) => expect.fail(String(error));

it('keeps a spec for the next server, with its environment sealed', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'cay-specs-'));
  const box = sealedBox(Buffer.alloc(32, 1));
  const id = newId('sbx');
  const spec = SandboxSpecSchema.parse({ env: { TOKEN: 'secret-value' } });
  const files = specFiles(`${dir}/specs`, box, fail);
  expect(await files.ids()).toEqual([]);
  await files.keep(id, spec);
  // Limits do not make another spec, and those that it was made with stay.
  await files.keep(id, { ...spec, limits: { ...spec.limits, cpus: 9 } });
  const later = specFiles(`${dir}/specs`, box, fail);
  expect(await later.read(id, hashOf(spec))).toEqual(spec);
  expect(await later.ids()).toEqual([id]);
  expect(await readFile(`${dir}/specs/${id}.json`, 'utf8')).not.toContain('secret-value');
  await expect(later.read(id, 'another')).rejects.toMatchObject({ details: { reason: 'spec_unknown' } });
  await expect(later.read(newId('sbx'), hashOf(spec))).rejects.toMatchObject({ code: 'failed_precondition' });
  await expect(specFiles(`${dir}/specs`, undefined, fail).read(id, hashOf(spec))).rejects.toMatchObject({
    code: 'failed_precondition',
  });
  // It may be of a sandbox that is just being made.
  await later.removeUnused(id);
  expect(await later.ids()).toEqual([id]);
  await later.remove(id);
  expect(await later.ids()).toEqual([]);
  await rm(dir, { recursive: true });
});
