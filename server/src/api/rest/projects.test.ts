import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());

const admin = () => ({ key: test.admin });

describe('DELETE /v1/projects/{project}', () => {
  it('removes an empty project with its keys, once and again', async () => {
    await test.call('POST', '/v1/projects', { ...admin(), body: { name: 'short-lived' } });
    const { secret } = (
      await test.call('POST', '/v1/keys', { ...admin(), body: { name: 'k', project: 'short-lived' } })
    ).json as { secret: string };
    expect((await test.call('GET', '/v1/sandboxes', { key: secret })).status).toBe(200);
    expect((await test.call('DELETE', '/v1/projects/short-lived', admin())).status).toBe(204);
    expect((await test.call('GET', '/v1/sandboxes', { key: secret })).status).toBe(401);
    expect((await test.call('GET', '/v1/projects', admin())).text).not.toContain('short-lived');
    expect((await test.call('DELETE', '/v1/projects/short-lived', admin())).status).toBe(204);
    expect((await test.call('GET', '/v1/events', admin())).text).toContain('project.removed');
  });

  it('refuses a project that has sandboxes, the own one, and members', async () => {
    const { id } = await test.create();
    const refused = await test.call('DELETE', '/v1/projects/alice', admin());
    expect(refused).toMatchObject({ status: 412 });
    expect(refused.json.error.details).toEqual({ sandboxes: 1 });
    expect((await test.call('GET', `/v1/sandboxes/${id}`)).status).toBe(200);
    expect((await test.call('DELETE', '/v1/projects/default', admin())).status).toBe(412);
    expect((await test.call('DELETE', '/v1/projects/bob')).status).toBe(403);
  });
});

describe('GET /v1/projects/{project}/usage', () => {
  it('shows what is in use to members of the project and to admins', async () => {
    await test.create();
    const own = await test.call('GET', '/v1/projects/alice/usage');
    expect(own.json.sandboxes.used).toBeGreaterThan(0);
    expect((await test.call('GET', '/v1/projects/alice/usage', admin())).json).toEqual(own.json);
    expect((await test.call('GET', '/v1/projects/alice/usage', { key: test.bob })).status).toBe(404);
  });
});

describe('listing', () => {
  it('shows sandboxes of all projects to admins alone', async () => {
    const mine = await test.create();
    const theirs = await test.create({}, test.bob);
    const { text } = await test.call('GET', '/v1/sandboxes?allProjects=true', admin());
    expect(text).toContain(mine.id);
    expect(text).toContain(theirs.id);
    expect((await test.call('GET', '/v1/sandboxes', admin())).text).not.toContain(mine.id);
    expect((await test.call('GET', '/v1/sandboxes?allProjects=true')).status).toBe(403);
  });

  it('shows the newest events', async () => {
    const { id } = await test.create();
    const all = (await test.call('GET', '/v1/events')).json.events as { id: number }[];
    const { events, last } = (await test.call('GET', '/v1/events?tail=2')).json;
    expect(events).toEqual(all.slice(-2));
    expect(last).toBe(all.at(-1)!.id);
    const ofOne = (await test.call('GET', `/v1/events?tail=5&sandbox=${id}`)).json.events as {
      sandbox: string;
    }[];
    expect(ofOne.map(({ sandbox }) => sandbox)).toEqual([id]);
  });
});
