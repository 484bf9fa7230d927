import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalName, familiarName, parseReference, taggedPart } from './reference.ts';

const digest = `sha256:${'a1'.repeat(32)}`;

describe('parseReference()', () => {
  it.each([
    ['python', 'docker.io/library/python:latest', 'python:latest'],
    ['python:3.12-slim', 'docker.io/library/python:3.12-slim', 'python:3.12-slim'],
    ['docker.io/python', 'docker.io/library/python:latest', 'python:latest'],
    ['index.docker.io/library/python:3', 'docker.io/library/python:3', 'python:3'],
    ['team/tool', 'docker.io/team/tool:latest', 'team/tool:latest'],
    ['library/a/b', 'docker.io/library/a/b:latest', 'library/a/b:latest'],
    [`python@${digest}`, `docker.io/library/python@${digest}`, `python@${digest}`],
    [`host:5000/a/b@${digest}`, `host:5000/a/b@${digest}`, `host:5000/a/b@${digest}`],
    [`ghcr.io/a/b:1@${digest}`, `ghcr.io/a/b:1@${digest}`, `ghcr.io/a/b:1@${digest}`],
    ['localhost/a', 'localhost/a:latest', 'localhost/a:latest'],
    ['LOCALHOST:5000/a', 'localhost:5000/a:latest', 'localhost:5000/a:latest'],
    ['[::1]:5000/a', '[::1]:5000/a:latest', '[::1]:5000/a:latest'],
    ['127.0.0.1:5000/a__b/c-d.e', '127.0.0.1:5000/a__b/c-d.e:latest', '127.0.0.1:5000/a__b/c-d.e:latest'],
  ])('reads %s', (text, canonical, familiar) => {
    expect(canonicalName(parseReference(text))).toBe(canonical);
    expect(familiarName(parseReference(text))).toBe(familiar);
  });

  it.each([
    '',
    ' python',
    'python:',
    'python:-x',
    `python:${'x'.repeat(129)}`,
    'python@sha256:abc',
    `python@sha512:${'a'.repeat(64)}`,
    `python@${digest}@${digest}`,
    'Python',
    'a//b',
    '/a',
    'a/',
    'a/../b',
    'a..b/c..d',
    'host..x/a',
    'host:99999/a',
    'host:port/a',
    'http://host/a',
    'user:password@host/a',
    'a___b',
    'a\n',
    'a b',
    'host/%2e%2e/x',
    'x'.repeat(600),
  ])('refuses %j', (text) => {
    expect(() => parseReference(text)).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
  });

  const component = fc.stringMatching(/^[a-z0-9]{1,8}((\.|_|__|-)[a-z0-9]{1,4}){0,2}$/);
  const reference = fc.record(
    {
      registry: fc.constantFrom('docker.io', 'ghcr.io', 'host:5000', 'localhost', '10.0.0.1:443'),
      repository: fc.array(component, { minLength: 1, maxLength: 4 }).map((parts) => parts.join('/')),
      tag: fc.stringMatching(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}$/),
      digest: fc.constant(digest),
    },
    { requiredKeys: ['registry', 'repository'] },
  );

  it('reads its own names, long and short, as the same image', () => {
    fc.assert(
      fc.property(reference, (given) => {
        const parsed = parseReference(canonicalName(given));
        expect(parseReference(canonicalName(parsed))).toEqual(parsed);
        expect(parseReference(familiarName(parsed))).toEqual(parsed);
        const tagged = taggedPart(parsed);
        expect(tagged?.tag).toBe(parsed.tag);
      }),
    );
  });

  it('throws nothing but refusals, whatever it is given', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 600 }), (text) => {
        try {
          const parsed = parseReference(text);
          expect(canonicalName(parsed)).toMatch(/^[a-z0-9.:[\]-]+\/[a-z0-9._/-]+[A-Za-z0-9_.:@-]*$/);
        } catch (error) {
          expect(error).toMatchObject({ code: 'invalid_argument' });
        }
      }),
    );
  });
});
