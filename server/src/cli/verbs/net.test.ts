import { describe, expect, it } from 'vitest';
import { ruleText } from './net.ts';

describe('ruleText()', () => {
  it('is the target, with its conditions and secrets', () => {
    expect(ruleText('api.example.org:443')).toBe('api.example.org:443');
    expect(ruleText({ to: 'api.example.org' })).toBe('api.example.org');
    expect(
      ruleText({
        to: 'api.example.org',
        methods: ['GET', 'POST'],
        paths: ['/v1'],
        put: { as: 'header', header: 'X-Api-Key', secret: 'API_TOKEN' },
      }),
    ).toBe('api.example.org (GET POST; /v1; secret API_TOKEN)');
  });
});
