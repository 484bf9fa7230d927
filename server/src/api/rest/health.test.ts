import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HealthSchema } from '@cay/sdk/protocol';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());

describe('GET /v1/health', () => {
  it('has a verdict, its findings and the number of sandboxes', async () => {
    await test.create();
    const { status, json } = await test.call('GET', '/v1/health');
    expect(status).toBe(200);
    const health = HealthSchema.parse(json);
    expect(health.checks.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['records', 'backend', 'event loop', 'errors']),
    );
    expect(health.sandboxes).toEqual({ active: 1 });
  });

  it('shows errors to admins alone, and nothing without a key', async () => {
    test.server.noteError(new Error('a disk that sighs'));
    const admin = await test.call('GET', '/v1/health', { key: test.admin });
    expect(admin.json.recentErrors).toMatchObject([{ message: 'a disk that sighs' }]);
    expect(admin.json.checks).toContainEqual({ name: 'errors', level: 'warn', detail: expect.any(String) });
    expect((await test.call('GET', '/v1/health')).json.recentErrors).toEqual([]);
    expect((await test.call('GET', '/v1/health', { key: null })).status).toBe(401);
  });
});

describe('POST /v1/admin/sweep', () => {
  it('is for admins, and says where there is nothing to look for', async () => {
    expect((await test.call('POST', '/v1/admin/sweep')).status).toBe(403);
    const { status, json } = await test.call('POST', '/v1/admin/sweep?dryRun=1', { key: test.admin });
    expect(status).toBe(501);
    expect(json.error.code).toBe('unsupported');
  });
});
