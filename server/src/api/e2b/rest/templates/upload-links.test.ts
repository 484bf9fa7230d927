import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { uploadLinks, type Upload } from './upload-links.ts';

const secret = Buffer.alloc(32, 1);
const queryOf = (link: string) =>
  Object.fromEntries(new URL(link, 'http://server').searchParams) as {
    project: string;
    expires: string;
    signature: string;
  };

describe('upload links', () => {
  const links = uploadLinks(secret, { now: () => 1000 });

  it('allow what they were made for', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string(), fc.string(), async (project, template) => {
        const upload: Upload = { project, template, hash: 'a'.repeat(64) };
        expect(await links.require(upload, queryOf(await links.make(upload)))).toEqual(upload);
      }),
    );
  });

  it('allow nothing else, and nothing for ever', async () => {
    const upload: Upload = { project: 'prj_1', template: 'mine', hash: 'a'.repeat(64) };
    const query = queryOf(await links.make(upload));
    const refused = (change: Partial<Upload> & Partial<typeof query>, by = links) =>
      expect(by.require({ ...upload, ...change }, { ...query, ...change })).rejects.toThrow(
        /not valid|expired/,
      );
    await refused({ hash: 'b'.repeat(64) });
    await refused({ template: 'other' });
    await refused({ project: 'prj_2' });
    await refused({ expires: '99999999999999' });
    await refused({ signature: '' });
    await refused({ signature: query.signature.slice(1) });
    await refused({ signature: `${query.signature}=` });
    await refused({}, uploadLinks(secret, { now: () => 1000, epochOf: async () => 1 }));
    await refused({}, uploadLinks(secret, { now: () => 1000 + 3600_000 }));
    await refused({}, uploadLinks(Buffer.alloc(32, 2), { now: () => 1000 }));
  });
});
