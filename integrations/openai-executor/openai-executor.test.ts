import { Sandbox } from '@cay/sdk';
import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { serverWithTarget } from '../testing/server-with-target.ts';
import { executorWebhook } from './index.ts';

const WEBHOOK_SECRET = `whsec_${Buffer.from('a secret of webhooks').toString('base64')}`;

/** As the service signs: Standard Webhooks. */
function signed(event: Record<string, unknown>, secret = WEBHOOK_SECRET): Request {
  const body = JSON.stringify({ id: `evt_${randomUUID()}`, object: 'event', created_at: 1, ...event });
  const [id, at] = [`wh_${randomUUID()}`, String(Math.floor(Date.now() / 1000))];
  const mac = createHmac('sha256', Buffer.from(secret.slice('whsec_'.length), 'base64'))
    .update(`${id}.${at}.${body}`)
    .digest('base64');
  const headers = { 'webhook-id': id, 'webhook-timestamp': at, 'webhook-signature': `v1,${mac}` };
  return new Request('http://localhost/webhook', { method: 'POST', body, headers });
}

/** A stand-in for the Agents API: one session, whose environment waits for an executor. */
async function agentsApi(): Promise<{ url: string; waiting: boolean } & AsyncDisposable> {
  const state = { waiting: true };
  const server = createServer((request, response) => {
    const found =
      request.url === '/v1/agents/sessions/sess_1' &&
      request.headers.authorization === 'Bearer application-key';
    response.writeHead(found ? 200 : 401, { 'content-type': 'application/json' });
    const actions = state.waiting ? [{ type: 'environment_connection', environment_id: 'env_1' }] : [];
    response.end(JSON.stringify({ id: 'sess_1', object: 'agent.session', required_actions: actions }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(state, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  });
}

describe('the OpenAI Agents API', () => {
  it(
    'a session gets a sandbox with an executor, and the key stays outside',
    { timeout: 120_000 },
    async () => {
      await using outside = await serverWithTarget('runc');
      await using service = await agentsApi();
      const access = { url: outside.url, apiKey: outside.apiKey };
      // A program in the place of Codex: it registers with the key that it has, and stays.
      const program = `#!/bin/sh\necho "$@" > ~/arguments; curl -sk -H "Authorization: Bearer $CODEX_API_KEY" "$3/v1/register" > ~/registered; exec sleep 600\n`;
      const prepared = await Sandbox.create({ network: 'none' }, access);
      await prepared.files.write('codex', program, { mode: 0o755 });
      const { id: snapshot } = await prepared.snapshot();
      await prepared.kill();
      const template = await fetch(`${outside.url}/v1/templates/codex`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${outside.apiKey}`, 'content-type': 'application/json' },
        body: JSON.stringify({ snapshot }),
      });
      expect(template.ok, await template.text()).toBe(true);

      const handle = executorWebhook({
        ...access,
        client: new OpenAI({
          baseURL: service.url,
          apiKey: 'application-key',
          webhookSecret: WEBHOOK_SECRET,
        }),
        executorKey: 'value-of-the-executor-key',
        template: 'codex',
        command: '/home/user/codex',
        api: `https://${outside.target}`,
        relay: 'other.example.org',
      });
      const wanted = {
        type: 'agent.session.action_required',
        data: { id: 'sess_1', required_action: { type: 'environment_connection' } },
      };
      expect(
        (await handle(signed(wanted, `whsec_${Buffer.from('another').toString('base64')}`))).status,
      ).toBe(400);
      expect((await handle(signed({ type: 'agent.session.created', data: { id: 'sess_1' } }))).status).toBe(
        204,
      );
      const sandboxes = async () => {
        const found = [];
        for await (const sandbox of Sandbox.list(access)) found.push(sandbox);
        return found;
      };
      expect(await sandboxes()).toEqual([]);

      // Events are delivered more than once.
      const statuses = await Promise.all([handle(signed(wanted)), handle(signed(wanted))]);
      expect(statuses.map(({ status }) => status)).toEqual([204, 204]);
      const [sandbox, ...more] = await sandboxes();
      expect(more).toEqual([]);
      await expect.poll(() => outside.seen.length, { timeout: 20_000 }).toBeGreaterThan(0);
      expect(outside.seen.map(({ path, headers }) => [path, headers.authorization])).toEqual([
        ['/v1/register', 'Bearer value-of-the-executor-key'],
      ]);
      expect(await sandbox!.files.readText('arguments')).toBe(
        `exec-server --remote https://${outside.target} --environment-id env_1\n`,
      );
      const { stdout } = await sandbox!.exec('env; cat /proc/*/environ /home/user/registered 2>/dev/null');
      expect(stdout).toContain('CODEX_API_KEY=');
      expect(stdout).not.toContain('value-of-the-executor-key');

      // An executor that has ended is started again when the session asks again.
      for (const { id, end } of await sandbox!.commands()) if (!end) await sandbox!.signal(id, 'SIGKILL');
      await handle(signed(wanted));
      await expect.poll(() => outside.seen.length, { timeout: 20_000 }).toBe(2);
      service.waiting = false;
      await handle(signed(wanted));
      expect((await sandbox!.commands()).filter(({ end }) => !end)).toHaveLength(1);
      await handle(signed({ type: 'agent.session.failed', data: { id: 'sess_1' } }));
      expect(await sandboxes()).toEqual([]);
    },
  );
});
