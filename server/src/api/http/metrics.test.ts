import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());

async function metrics(): Promise<Map<string, number>> {
  const { text } = await test.call('GET', '/metrics', { key: test.admin });
  const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    samples.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]),
  );
}

describe('metrics', () => {
  it('count creates, commands, quotas and webhooks', async () => {
    const { id } = await test.create();
    await test.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv: ['true'] } });
    const { project } = (await test.call('GET', `/v1/sandboxes/${id}`)).json;
    await test.call('PATCH', `/v1/projects/${project}`, {
      key: test.admin,
      body: { quota: { sandboxes: 5 } },
    });
    const found = await metrics();
    expect(found.get('cay_sandboxes{state="active"}')).toBe(1);
    expect(found.get('cay_sandbox_create_seconds_count')).toBe(1);
    expect(found.get('cay_sandbox_create_seconds_bucket{le="+Inf"}')).toBe(1);
    expect(found.get('cay_command_start_seconds_count')).toBe(1);
    expect(found.get('cay_http_requests_total{route="exec",status="2xx"}')).toBe(1);
    expect(found.get(`cay_quota_used{project="${project}",quota="sandboxes"}`)).toBe(1);
    expect(found.get(`cay_quota_limit{project="${project}",quota="sandboxes"}`)).toBe(5);
    expect(found.get('cay_webhooks{state="healthy"}')).toBe(0);
    expect(found.get('cay_webhook_lag_seconds')).toBe(0);
  });

  it('have one head for each metric, before its samples', async () => {
    const { text } = await test.call('GET', '/metrics', { key: test.admin });
    const heads = text.split('\n').filter((line) => line.startsWith('# TYPE'));
    expect(new Set(heads).size).toBe(heads.length);
    let current = '';
    for (const line of text.split('\n').filter(Boolean)) {
      if (line.startsWith('# TYPE')) current = line.split(' ')[2]!;
      else if (!line.startsWith('#'))
        expect(line).toMatch(new RegExp(`^${current}(_bucket|_sum|_count)?[{ ]`));
    }
  });
});
