import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ByteMask, ByteSearch } from './byte-search.ts';
import { scopeOfHost, sha256, signV4 } from '../../lib/sigv4.ts';

describe('AWS signatures', () => {
  it('are those of the published example', () => {
    const headers = signV4({
      method: 'GET',
      authority: 'iam.amazonaws.com',
      target: '/?Action=ListUsers&Version=2010-05-08',
      headers: [['Content-Type', 'application/x-www-form-urlencoded; charset=utf-8']],
      payloadHash: sha256(''),
      region: 'us-east-1',
      service: 'iam',
      accessKeyId: 'AKIDEXAMPLE',
      secretKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
      now: new Date('2015-08-30T12:36:00Z'),
    });
    expect(Object.fromEntries(headers)['Authorization']).toBe(
      'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7',
    );
  });

  it.each([
    ['s3.eu-west-1.amazonaws.com', { region: 'eu-west-1', service: 's3' }],
    ['bucket.s3.eu-west-1.amazonaws.com', { region: 'eu-west-1', service: 's3' }],
    ['iam.amazonaws.com', { region: 'us-east-1', service: 'iam' }],
    ['dynamodb.us-gov-west-1.amazonaws.com:443', { region: 'us-gov-west-1', service: 'dynamodb' }],
    ['amazonaws.com.evil.org', undefined],
  ])('%s is for %j', (host, scope) => {
    expect(scopeOfHost(host)).toEqual(scope);
  });
});

const pieces = fc.tuple(
  fc.array(fc.constantFrom('s', 'e', 'c', 'secret', 'secsecret', 'x', ''), { maxLength: 20 }),
  fc.array(fc.nat({ max: 60 }), { maxLength: 6 }),
);
const cut = (text: string, at: readonly number[]) => {
  const places = [...at.map((one) => Math.min(one, text.length)), 0, text.length].toSorted(
    (one, other) => one - other,
  );
  return places.slice(1).map((end, index) => Buffer.from(text.slice(places[index], end)));
};

describe('texts in streams', () => {
  it('are found wherever the stream is cut', () => {
    fc.assert(
      fc.property(pieces, ([parts, at]) => {
        const text = parts.join('');
        const search = new ByteSearch(['secret']);
        const found = cut(text, at).some((chunk) => search.find(chunk) !== undefined);
        expect(found).toBe(text.includes('secret'));
      }),
    );
  });

  it('are masked wherever the stream is cut, and its length stays', () => {
    fc.assert(
      fc.property(pieces, ([parts, at]) => {
        const text = parts.join('');
        const mask = new ByteMask(['secret']);
        const passed = cut(text, at).map((chunk) => mask.pass(chunk, false));
        const all = Buffer.concat([...passed, mask.pass(Buffer.alloc(0), true)]).toString();
        expect(all).toBe(text.replaceAll('secret', '******'));
      }),
    );
  });
});
