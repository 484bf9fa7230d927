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

  it('allow what they were made for', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (project, template) => {
        const upload: Upload = { project, template, hash: 'a'.repeat(64) };
        expect(links.require(upload, queryOf(links.make(upload)))).toEqual(upload);
      }),
    );
  });

  it('allow nothing else, and nothing for ever', () => {
    const upload: Upload = { project: 'prj_1', template: 'mine', hash: 'a'.repeat(64) };
    const query = queryOf(links.make(upload));
    const refused = (change: Partial<Upload> & Partial<typeof query>, by = links) =>
      expect(() => by.require({ ...upload, ...change }, { ...query, ...change })).toThrow(
        /not valid|expired/,
      );
    refused({ hash: 'b'.repeat(64) });
    refused({ template: 'other' });
    refused({ project: 'prj_2' });
    refused({ expires: '99999999999999' });
    refused({ signature: '' });
    refused({ signature: query.signature.slice(1) });
    refused({ signature: `${query.signature}=` });
    refused({}, uploadLinks(secret, { now: () => 1000, epochOf: () => 1 }));
    refused({}, uploadLinks(secret, { now: () => 1000 + 3600_000 }));
    refused({}, uploadLinks(Buffer.alloc(32, 2), { now: () => 1000 }));
  });
});
