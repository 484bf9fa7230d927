/**
 * `kill -9` of a whole server while commands write, keys are made and a webhook is told: afterwards the next
 * server has every event that was acknowledged in an unbroken chain, the webhook hears of all of them in
 * order, and the output and the end of every command that was left running are there, each byte once.
 *
 * A few kills happen with all tests; `CAY_FAULT_KILLS=50 npx vitest run test/faults/kill-records.test.ts`
 * does more.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AuditVerdict, CayEvent, ExecEvent } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { openCay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { killServing, startServing, type Serving } from '../support/serving.ts';

const kills = Number(process.env['CAY_FAULT_KILLS'] ?? 3);
const reason = whyNoLocal();
const LINES = 150;
const MOST_REFUSALS = 6;

describe.skipIf(reason !== undefined)(
  `kill -9 of a server that records${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    it(
      'loses no event, no webhook and no byte of a command',
      async () => {
        const heard: CayEvent[] = [];
        // Each refusal costs a second until the next try, so there are few of them however many events there
        // are.
        let refusals = 0;
        const receiver = createServer((request, response) => {
          let body = '';
          request.on('data', (data: Buffer) => (body += data.toString()));
          request.on('end', () => {
            heard.push((JSON.parse(body) as { event: CayEvent }).event);
            const refuse = refusals < MOST_REFUSALS && Math.random() < 0.1;
            if (refuse) refusals++;
            response.writeHead(refuse ? 500 : 204).end();
          });
        });
        await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
        await using cay = await openCay({ CAY_RUNTIME: 'runc', CAY_WEBHOOK_PRIVATE: '1' });
        let server = await startServing(cay.env);
        const call = caller(() => server);
        const sandbox = `/v1/sandboxes/${(await call<{ id: string }>('POST', '/v1/sandboxes', {})).id}`;
        await call('POST', '/v1/webhooks', {
          url: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`,
          types: ['key.*', 'command.ended'],
        });

        const made: string[] = [];
        const commands: string[] = [];
        for (let round = 0; round < kills; round++) {
          const id = `tick-${round}`;
          const shell = `i=0; while [ $i -lt ${LINES} ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); sleep 0.01; done; exit ${round + 1}`;
          await call('POST', `${sandbox}/commands`, { id, shell });
          commands.push(id);
          const killed = sleep(100 + Math.random() * 700).then(() => server.child.kill('SIGKILL'));
          // Those that are answered are acknowledged; the one that the kill cuts off may be there or not.
          for (let i = 0; ; i++) {
            const name = `key-${round}-${i}`;
            try {
              await call('POST', '/v1/keys', { name });
              made.push(name);
            } catch {
              break;
            }
          }
          await killed;
          await killServing(server);
          server = await startServing(cay.env);
        }

        for (const [round, id] of commands.entries()) {
          const events = await output(server, `${sandbox}/commands/${id}`);
          const lines = (channel: string) =>
            Array.from({ length: LINES }, (_, i) => `${channel} ${i}\n`).join('');
          expect(text(events, 'stdout'), id).toBe(lines('out'));
          expect(text(events, 'stderr'), id).toBe(lines('err'));
          expect(events.at(-1), id).toMatchObject({
            type: 'end',
            end: { kind: 'exited', exitCode: round + 1 },
          });
        }

        const recorded = await eventsOf(call);
        const created = recorded.filter(({ type }) => type === 'key.created').map(({ data }) => data['name']);
        expect(created.filter((name) => made.includes(name as string))).toEqual(made);
        for (const id of commands)
          expect(
            recorded.filter(({ type, data }) => type === 'command.ended' && data['command'] === id),
          ).toHaveLength(1);
        expect(await call<AuditVerdict>('GET', '/v1/audit/verify')).toMatchObject({
          ok: true,
          events: recorded.length,
        });

        const wanted = recorded
          .filter(({ type }) => type.startsWith('key.') || type === 'command.ended')
          .map(({ id }) => id);
        for (
          const deadline = Date.now() + 20_000;
          new Set(heard.map(({ id }) => id)).size < wanted.length && Date.now() < deadline;
        )
          await sleep(50);
        const firsts = [...new Set(heard.map(({ id }) => id))];
        expect(firsts).toEqual(wanted);
        console.info(
          `${kills} kills: ${made.length} keys acknowledged, ${recorded.length} events, ${heard.length} requests for ${wanted.length} of them`,
        );

        await call('POST', `${sandbox}/stop`, {});
        expect(text(await output(server, `${sandbox}/commands/${commands[0]!}`), 'stdout')).toContain(
          `out ${LINES - 1}\n`,
        );
        await killServing(server, 'SIGTERM');
        expect(await cay.json<AuditVerdict>('audit', 'verify')).toMatchObject({ ok: true, sealed: true });
        receiver.close();
        receiver.closeAllConnections();
      },
      60_000 + kills * 20_000,
    );
  },
);

function caller(server: () => Serving) {
  return async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const { url, key } = server();
    const response = await fetch(url + path, {
      method,
      headers: { authorization: `Bearer ${key}` },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const words = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${words}`);
    return (words === '' ? undefined : JSON.parse(words)) as T;
  };
}

async function eventsOf(call: ReturnType<typeof caller>): Promise<CayEvent[]> {
  const all: CayEvent[] = [];
  for (let after = 0; ;) {
    const { events, last } = await call<{ events: CayEvent[]; last: number }>(
      'GET',
      `/v1/events?after=${after}`,
    );
    if (events.length === 0) return all;
    all.push(...events);
    after = last;
  }
}

async function output({ url, key }: Serving, path: string): Promise<ExecEvent[]> {
  const response = await fetch(`${url}${path}/output?encoding=base64`, {
    headers: { authorization: `Bearer ${key}` },
  });
  expect(response.status).toBe(200);
  const events = (await response.text())
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as ExecEvent);
  let at = 0;
  for (const event of events) {
    if (event.type !== 'stdout' && event.type !== 'stderr') continue;
    expect(event.offset).toBe(at);
    at += Buffer.from(event.data, 'base64').length;
  }
  return events;
}

const text = (events: ExecEvent[], type: string) =>
  Buffer.concat(
    events.flatMap((event) =>
      event.type === type && 'data' in event ? [Buffer.from(event.data, 'base64')] : [],
    ),
  ).toString();
