import { describe, expect, it } from 'vitest';
import { secretRules } from './secret-rules.ts';

describe('secretRules()', () => {
  it('tells where secrets would go', () => {
    expect(secretRules(null)).toEqual([]);
    expect(secretRules('public')).toEqual([]);
    const allow = [
      'example.org',
      { to: 'api.example.org', methods: ['GET'] },
      { to: 'thief.example', put: { as: 'header', header: 'Authorization', secret: 'token' } },
      { to: 'harmless.example', put: { as: 'header', header: 'X-Kind', value: 'x' } },
      { to: 'other.example', put: [{ as: 'git', secret: 'token' }] },
    ];
    expect(secretRules({ allow })).toEqual(['thief.example', 'other.example']);
  });

  it('takes nothing else for a policy', () => {
    for (const odd of [1, [], 'evil', { allow: 'x' }, { allow: [{ to: 'x.org', put: 'token' }] }])
      expect(secretRules(odd), JSON.stringify(odd)).toBeUndefined();
  });
});
