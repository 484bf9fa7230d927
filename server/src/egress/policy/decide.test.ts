import { type NetworkPolicy, NetworkPolicySchema } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { addressKind } from '../../lib/address-kind.ts';
import { parseTarget, printTarget } from '../rules/parse-target.ts';
import { compileGrants, compilePolicy, normalizePolicy, presetsOf } from './compile-policy.ts';
import { admitAddress, decideAddress, decideName, decideRequest, deniedName, type Layers } from './decide.ts';
import { PRESETS } from './presets.ts';

const layersOf = (...policies: NetworkPolicy[]): Layers => ({
  layers: policies.map((policy) => compilePolicy(NetworkPolicySchema.parse(policy))),
});
/** The first host of a preset. */
const hostOf = (name: string) => PRESETS.find((preset) => preset.name === name)!.rules[0]!.split(':')[0]!;
const PYPI = hostOf('pypi');
const known = (address: string, own = false) => ({ address, kind: addressKind(address), own });
const head = (method: string, path: string, headers: Record<string, string> = {}) => ({
  method,
  path,
  headers: new Map(Object.entries(headers)),
});

describe('named policies', () => {
  it('none reaches nothing', () => {
    expect(decideName(layersOf('none'), 'example.org', 443)).toMatchObject({
      verdict: 'deny',
      reason: 'no_rule',
    });
    expect(decideAddress(layersOf('none'), known('8.8.8.8'), 443).verdict).toBe('deny');
  });

  it('packages reaches registries on their ports, and nothing else', () => {
    const packages = layersOf('packages');
    expect(decideName(packages, PYPI, 443)).toMatchObject({
      verdict: 'allow',
      rule: `pypi: ${PYPI}:443`,
    });
    expect(decideName(packages, 'github.com', 22).verdict).toBe('allow');
    expect(decideName(packages, hostOf('debian'), 80).verdict).toBe('allow');
    expect(decideName(packages, PYPI, 80).verdict).toBe('deny');
    expect(decideName(packages, `evil.${PYPI}`, 443).verdict).toBe('deny');
    expect(decideName(packages, `${PYPI}.evil.org`, 443).verdict).toBe('deny');
    expect(decideName(packages, 'api.openai.com', 443).verdict).toBe('deny');
    expect(decideAddress(packages, known('8.8.8.8'), 443).verdict).toBe('deny');
  });

  it('public reaches every public address and no other', () => {
    const open = layersOf('public');
    expect(decideName(open, 'example.org', 25).verdict).toBe('allow');
    expect(decideAddress(open, known('8.8.8.8'), 53).verdict).toBe('allow');
    for (const address of [
      '127.0.0.1',
      '10.0.0.1',
      '169.254.169.254',
      '::1',
      'fd00::1',
      '224.0.0.1',
      '::ffff:10.0.0.1',
    ])
      expect(decideAddress(open, known(address), 80)).toMatchObject({ verdict: 'deny', reason: 'address' });
    expect(decideAddress(open, known('8.8.8.8', true), 80)).toMatchObject({ reason: 'address' });
    expect(admitAddress(open, 'example.org', known('10.0.0.1'), 80).verdict).toBe('deny');
    expect(admitAddress(open, 'example.org', known('8.8.8.8'), 80).verdict).toBe('allow');
  });

  it('ask asks for what packages does not have', () => {
    expect(decideName(layersOf('ask'), PYPI, 443).verdict).toBe('allow');
    expect(decideName(layersOf('ask'), 'example.org', 443).verdict).toBe('ask');
    expect(decideAddress(layersOf('ask'), known('8.8.8.8'), 443).verdict).toBe('ask');
    expect(decideAddress(layersOf('ask'), known('10.0.0.1'), 443).verdict).toBe('deny');
  });

  it('without a policy nothing is allowed', () => {
    expect(decideName({ layers: [] }, 'example.org', 443)).toMatchObject({
      verdict: 'deny',
      reason: 'no_policy',
    });
  });
});

describe('rules', () => {
  it('globs cover every name below, and not the name itself', () => {
    const policy = layersOf({ allow: ['*.example.org'] });
    expect(decideName(policy, 'a.b.example.org', 443).verdict).toBe('allow');
    expect(decideName(policy, 'example.org', 443).verdict).toBe('deny');
    expect(decideName(policy, 'badexample.org', 443).verdict).toBe('deny');
  });

  it('deny wins over allow and base, unless it is said otherwise', () => {
    const lists = { base: 'public', allow: ['a.example.org:*'], deny: ['*.example.org:*'] } as const;
    const both = (extra: object) => ({ ...lists, allow: [...lists.allow], deny: [...lists.deny], ...extra });
    expect(decideName(layersOf(both({})), 'a.example.org', 443)).toMatchObject({ reason: 'deny_rule' });
    expect(decideName(layersOf(both({ precedence: 'allow' })), 'a.example.org', 443).verdict).toBe('allow');
    expect(decideName(layersOf(both({ precedence: 'allow' })), 'b.example.org', 443).verdict).toBe('deny');
    expect(decideName(layersOf(both({})), 'other.org', 443).verdict).toBe('allow');
  });

  it('a denied network is denied for names that resolve into it', () => {
    const policy = layersOf({ base: 'public', deny: ['8.8.8.0/24'] });
    expect(admitAddress(policy, 'dns.example', known('8.8.8.8'), 443)).toMatchObject({ reason: 'deny_rule' });
    expect(decideAddress(policy, known('8.8.8.8'), 443).verdict).toBe('deny');
    const allowed = layersOf({
      base: 'public',
      deny: ['8.8.8.0/24'],
      allow: ['8.8.8.8'],
      precedence: 'allow',
    });
    expect(decideAddress(allowed, known('8.8.8.8'), 443).verdict).toBe('allow');
    expect(decideAddress(allowed, known('8.8.8.9'), 443).verdict).toBe('deny');
  });

  it('a network permits special addresses only if it is wholly special', () => {
    const name = 'db.example.org';
    const at = (...allow: string[]) => layersOf({ allow: [`${name}:5432`, ...allow] });
    expect(admitAddress(at(), name, known('10.0.0.1'), 5432).verdict).toBe('deny');
    expect(admitAddress(at('10.0.0.0/8'), name, known('10.0.0.1'), 5432).verdict).toBe('allow');
    expect(admitAddress(at('10.0.0.0/8:80'), name, known('10.0.0.1'), 5432).verdict).toBe('deny');
    for (const network of ['0.0.0.0/0', '8.0.0.0/6', '0.0.0.0/1'])
      expect(admitAddress(at(network), name, known('10.0.0.1'), 5432).verdict).toBe('deny');
    // The metadata service of a cloud is in a private range, and is not meant by it.
    expect(admitAddress(at('100.64.0.0/10'), name, known('100.100.100.200'), 5432).verdict).toBe('deny');
    expect(admitAddress(at('100.100.100.200'), name, known('100.100.100.200'), 5432).verdict).toBe('allow');
    // An address of this machine is named by itself.
    expect(admitAddress(at('10.0.0.0/8'), name, known('10.0.0.1', true), 5432).verdict).toBe('deny');
    expect(admitAddress(at('10.0.0.1'), name, known('10.0.0.1', true), 5432).verdict).toBe('allow');
  });

  it('conditions make requests be inspected, and decide each', () => {
    const policy = layersOf({
      allow: [{ to: 'api.example.org', methods: ['get'], paths: ['/repos/*/issues'] }],
    });
    expect(decideName(policy, 'api.example.org', 443)).toMatchObject({ verdict: 'allow', inspect: true });
    const verdict = (method: string, path: string, headers = {}) =>
      decideRequest(policy, 'api.example.org', 443, head(method, path, headers)).verdict;
    expect(verdict('GET', '/repos/x/issues')).toBe('allow');
    expect(verdict('HEAD', '/repos/x/issues/1')).toBe('allow');
    expect(verdict('POST', '/repos/x/issues')).toBe('deny');
    expect(verdict('GET', '/repos/x/issues', { 'x-http-method-override': 'DELETE' })).toBe('deny');
    for (const path of [
      '/repos/x/pulls',
      '/repos/x/issuesx',
      '/repos/x/y/issues',
      '/repos/x/issues/../../../admin',
      '/repos/x/issues/%2e%2e/%2e%2e/admin',
      '/repos/x/issues/%252e%252e/admin',
      '/repos/x/issues\\..\\admin',
      '/repos/x/issues/..;/admin',
      '//repos/x/issues',
      '/repos/x/issues/%zz',
      '/repos/x%2fissues',
      '*',
    ])
      expect(verdict('GET', path), path).toBe('deny');
  });

  it('conditions of deny rules cover every reading of a path', () => {
    const policy = layersOf({ allow: ['example.org'], deny: [{ to: 'example.org', paths: ['/admin'] }] });
    expect(decideName(policy, 'example.org', 443)).toMatchObject({ verdict: 'allow', inspect: true });
    const verdict = (path: string) => decideRequest(policy, 'example.org', 443, head('GET', path)).verdict;
    expect(verdict('/public')).toBe('allow');
    for (const path of ['/admin', '/admin/x', '//admin', '/%61dmin', '/x/../admin', '/x/%2e%2e/admin'])
      expect(verdict(path), path).toBe('deny');
  });

  it('headers are conditions too', () => {
    const policy = layersOf({ allow: [{ to: 'example.org', headers: { 'X-Team': 'blue-*' } }] });
    const verdict = (headers: Record<string, string>) =>
      decideRequest(policy, 'example.org', 443, head('GET', '/', headers)).verdict;
    expect(verdict({ 'x-team': 'blue-1' })).toBe('allow');
    expect(verdict({ 'x-team': 'red' })).toBe('deny');
    expect(verdict({})).toBe('deny');
  });

  it('a rule that puts a secret inspects', () => {
    const put = { as: 'header', header: 'Authorization', secret: 'TOKEN', value: 'Bearer {secret}' } as const;
    const policy = layersOf({ allow: ['api.example.org', { to: 'api.example.org', put }] });
    expect(decideName(policy, 'api.example.org', 443)).toMatchObject({ verdict: 'allow', inspect: true });
  });

  it('a grant turns ask into allow, within what other layers allow', () => {
    const granted = (...policies: NetworkPolicy[]): Layers => ({
      ...layersOf(...policies),
      grants: compileGrants(['example.org:443']),
    });
    expect(decideName(granted('ask'), 'example.org', 443).verdict).toBe('allow');
    expect(decideName(granted('ask'), 'example.org', 80).verdict).toBe('ask');
    expect(decideName(granted('none'), 'example.org', 443).verdict).toBe('deny');
    expect(decideName(granted('ask', 'packages'), 'example.org', 443)).toMatchObject({
      verdict: 'deny',
      reason: 'bounded',
    });
  });

  it('a denied name is denied by its address too', () => {
    const policy = layersOf({ base: 'public', deny: ['*.evil.example:*'] });
    expect(deniedName(policy, 'x.evil.example', 443)).toBe('*.evil.example:*');
    expect(deniedName(policy, 'x.example', 443)).toBeUndefined();
  });

  it.each([
    [{ allow: ['nmp'] }, 'no such preset'],
    [{ allow: [{ to: '10.0.0.1', methods: ['GET'] }] }, 'need a name'],
    [{ allow: [{ to: '*', put: { as: 'header', header: 'A', secret: 'S' } }] }, 'secrets need a name'],
    [{ allow: ['bad_*'] }, 'whole labels'],
  ] as [NetworkPolicy, string][])('%j is refused', (policy, why) => {
    expect(() => compilePolicy(policy)).toThrow(why);
  });

  it('writes rules in canonical form', () => {
    expect(
      normalizePolicy({ base: 'packages', allow: ['HTTPS://Example.org/', { to: 'X.example.org:80,443' }] }),
    ).toEqual({
      base: 'packages',
      allow: ['example.org:443', { to: 'x.example.org' }],
    });
  });
});

describe('presets', () => {
  it('are canonical, and each name is there once', () => {
    for (const preset of PRESETS)
      for (const rule of preset.rules) expect(printTarget(parseTarget(rule)), preset.name).toBe(rule);
    expect(presetsOf().size).toBe(PRESETS.length);
  });

  it('can be replaced and added to', () => {
    const npm = { name: 'npm', description: 'Ours', inPackages: true, rules: ['npm.example.org:443'] };
    const layer = { layers: [compilePolicy('packages', { presets: [npm] })] };
    expect(decideName(layer, 'npm.example.org', 443).verdict).toBe('allow');
    expect(decideName(layer, hostOf('npm'), 443).verdict).toBe('deny');
  });
});

describe('layers', () => {
  const host = fc.constantFrom('a.example.org', 'b.example.org', 'example.org', PYPI, 'x.test.dev');
  const rule = fc.oneof(
    fc.constantFrom(
      '*',
      '*:*',
      '*.example.org',
      'example.org',
      'a.example.org:22',
      '8.8.8.0/24',
      '10.0.0.0/8',
      '0.0.0.0/0',
      'pypi',
    ),
    fc.record({
      to: fc.constantFrom('*.example.org', 'a.example.org', 'example.org/x', '*'),
      methods: fc.constantFrom<string[]>(['GET'], ['POST', 'GET']),
    }),
    fc.record({
      to: fc.constantFrom('*.example.org', 'a.example.org'),
      paths: fc.constantFrom<string[]>(['/x'], ['/y', '/x/y']),
    }),
  );
  const policy: fc.Arbitrary<NetworkPolicy> = fc.oneof(
    fc.constantFrom('none' as const, 'packages' as const, 'public' as const, 'ask' as const),
    fc.record({
      base: fc.constantFrom('none' as const, 'packages' as const, 'public' as const),
      allow: fc.array(rule, { maxLength: 4 }),
      deny: fc.array(rule, { maxLength: 3 }),
      precedence: fc.constantFrom('deny' as const, 'allow' as const),
      otherwise: fc.constantFrom('deny' as const, 'ask' as const),
    }),
  );
  const port = fc.constantFrom(22, 80, 443);
  const address = fc.constantFrom('8.8.8.8', '9.9.9.9', '10.0.0.1', '127.0.0.1', '169.254.169.254');
  const request = fc
    .tuple(fc.constantFrom('GET', 'POST'), fc.constantFrom('/', '/x', '/x/y', '/y', '/x/../y'))
    .map(([method, path]) => head(method, path));
  const order = { deny: 0, ask: 1, allow: 2 };

  it('a child never reaches what a layer above denies, whatever was granted', () => {
    fc.assert(
      fc.property(policy, policy, host, port, address, request, (own, above, name, at, ip, one) => {
        const grants = compileGrants(['*:*', '0.0.0.0/0']);
        const child = { ...layersOf(own, above), grants };
        const parent = { ...layersOf(above), grants };
        const decide = [
          (policies: Layers) => decideName(policies, name, at),
          (policies: Layers) => decideRequest(policies, name, at, one),
          (policies: Layers) => decideAddress(policies, known(ip), at),
          (policies: Layers) => admitAddress(policies, name, known(ip), at),
        ];
        for (const ask of decide) {
          expect(order[ask(child).verdict]).toBeLessThanOrEqual(order[ask(parent).verdict]);
          expect(order[ask(child).verdict]).toBeLessThanOrEqual(
            order[ask({ ...layersOf(own), grants }).verdict],
          );
        }
      }),
      { numRuns: 400 },
    );
  });

  it('a request is only allowed where the connection is, and where it is not inspected all are', () => {
    fc.assert(
      fc.property(policy, host, port, request, (own, name, at, one) => {
        const layers = layersOf(own);
        const connection = decideName(layers, name, at);
        const verdict = decideRequest(layers, name, at, one).verdict;
        if (connection.verdict === 'deny') expect(verdict).toBe('deny');
        if (connection.verdict === 'allow' && !connection.inspect) expect(verdict).toBe('allow');
      }),
      { numRuns: 400 },
    );
  });
});
