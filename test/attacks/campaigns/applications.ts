/**
 * An application in a sandbox that answers from a grammar, visited by every way there is to a port: previews
 * by host and by path, ports of E2B's sandboxes by host and by header, with requests and with upgrades. A
 * visitor gets one answer that HTTP allows, or a closed connection, in time.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Campaign } from '../support/campaign.ts';
import { exchange } from '../support/exchange.ts';
import { PLATFORMS } from '../support/platforms.ts';
import { hostilePlan, planIn } from '../support/hostile-answer.ts';

const PATIENCE_MS = 5_000;
/** How long a visitor stays with an answer that does not end, or does not come. */
const ENDLESS_MS = 150;
const OURS_ABOVE_500 = [502, 503, 504];

export const applications: Campaign = {
  name: 'applications',
  targets: PLATFORMS.map(({ target }) => target),
  async open(target, random) {
    const made = (
      await target.alice.call('POST', '/v2/sandboxes', { body: { templateID: 'base', timeout: 3600 * 8 } })
    ).json;
    const id = `sbx_${made.sandboxID}`;
    const exposed = await target.alice.call('PUT', `/v1/sandboxes/${id}/ports/3000`, {
      body: { visibility: 'private' },
    });
    await target.alice.call('PUT', `/v1/sandboxes/${id}/ports/3001`, { body: { visibility: 'public' } });
    const token = exposed.json.token as string;
    const code = await readFile(join(import.meta.dirname, '../support/hostile-application.py'), 'utf8');
    await target.alice.call('POST', `/v1/sandboxes/${id}/commands`, {
      body: { argv: ['python3', '-c', code, '3000', '3001', '4000'] },
    });
    const ways = [
      { host: `3000-${made.sandboxID}.localhost`, prefix: '', headers: [`X-Cay-Preview-Token: ${token}`] },
      { host: `3001-${made.sandboxID}.localhost`, prefix: '', headers: [] },
      { host: 'localhost', prefix: `/preview/${id}/3001`, headers: [] },
      { host: `4000-${made.sandboxID}.localhost`, prefix: '', headers: [] },
      {
        host: 'localhost',
        prefix: '',
        headers: [`E2b-Sandbox-Id: ${made.sandboxID}`, 'E2b-Sandbox-Port: 4000'],
      },
      {
        host: 'localhost',
        prefix: '',
        headers: [`E2b-Sandbox-Id: ${made.sandboxID}`, 'E2b-Sandbox-Port: 3001'],
      },
    ];
    const hello = {
      steps: [{ send: Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello').toString('base64') }],
    };
    const at = { host: target.host, port: target.port };
    const visit = (
      way: (typeof ways)[number],
      plan: string,
      lines: string[],
      body = '',
      timeoutMs = PATIENCE_MS,
    ) => {
      const [method = 'GET', ...headers] = lines;
      const head = [
        `${method} ${way.prefix}/?${plan} HTTP/1.1`,
        `Host: ${way.host}`,
        ...way.headers,
        ...headers,
      ];
      return exchange(`${head.join('\r\n')}\r\n\r\n${body}`, { ...at, timeoutMs });
    };
    for (let tries = 0; (await visit(ways[1]!, planIn(hello), ['GET'])).status !== 200; tries++) {
      if (tries > 100) throw new Error('the application does not come up');
      await sleep(100);
    }

    return {
      async next() {
        const way = random.pick(ways);
        const upgrade = random.chance(0.3);
        const plan = hostilePlan(random);
        const method = upgrade ? 'GET' : random.pick(['GET', 'GET', 'POST', 'HEAD', 'PUT', 'OPTIONS']);
        const body = method === 'POST' || method === 'PUT' ? 'b'.repeat(random.pick([0, 10, 100_000])) : '';
        const websocket = ['Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version: 13'];
        const lines = upgrade
          ? ['Connection: Upgrade', 'Upgrade: websocket', ...websocket]
          : ['Connection: close'];
        if (body !== '') lines.push(`Content-Length: ${body.length}`);
        const { status, text, closed, ms } = await visit(
          way,
          planIn(plan),
          [method, ...lines],
          body,
          plan.endless ? ENDLESS_MS : PATIENCE_MS,
        );
        const what = `${method}${upgrade ? ' upgrade' : ''} ${way.host}${way.prefix} ${JSON.stringify(plan.words.slice(0, 700))} → ${status ?? (closed ? 'closed' : 'silence')}`;
        if (status === undefined) {
          if (!closed && !plan.endless) throw new Error(`${what}: no answer within ${Math.round(ms)} ms`);
          return what;
        }
        const isFine =
          (status >= 200 && status <= 599) || (status === 101 && upgrade) || (status === 100 && body !== '');
        if (!isFine) throw new Error(`${what}: no status for a visitor`);
        if (status >= 500 && !OURS_ABOVE_500.includes(status) && !plan.words.includes(` ${status}`))
          throw new Error(`${what}: ${text.slice(0, 300)}`);
        const head = text.slice(0, Math.max(0, text.indexOf('\r\n\r\n')));
        // oxlint-disable-next-line no-control-regex
        if (/[\0\x01\x7f]/.test(head))
          throw new Error(`${what}: control characters in ${JSON.stringify(head.slice(0, 300))}`);
        if (/^set-cookie: *=*cay_/im.test(head))
          throw new Error(`${what}: the application has set our cookie`);
        if (
          way.prefix !== '' &&
          /^(?:clear-site-data|alt-svc|strict-transport-security|service-worker-allowed):/im.test(head)
        )
          throw new Error(`${what}: the application speaks for the API's origin`);
        return what;
      },
    };
  },
};
