/**
 * A stand-in for the service of Claude Managed Agents: one self-hosted environment with one session, whose
 * agent calls the given tools one after another. It is not the service; it answers the routes that the
 * official worker of `@anthropic-ai/sdk` calls, and refuses any other credential than the one that the call
 * is to have.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ToolAnswer {
  isError: boolean;
  text: string;
}

export interface ManagedAgents extends AsyncDisposable {
  url: string;
  environmentKey: string;
  sessionsToken: string;
  /** Resolves when every call has its answer. */
  results: Promise<ToolAnswer[]>;
  /** Work items that the worker has stopped. */
  stopped: string[];
}

interface SentResult {
  tool_use_id: string;
  is_error?: boolean;
  content?: { type: string; text?: string }[];
}

const ENVIRONMENT_KEY = 'value-of-the-environment-key';
const SESSIONS_TOKEN = 'value-of-the-sessions-token';

export async function managedAgents(calls: [string, Record<string, unknown>][]): Promise<ManagedAgents> {
  const now = () => new Date().toISOString();
  const answers: ToolAnswer[] = [];
  const stopped: string[] = [];
  const streams = new Set<ServerResponse>();
  const events: Record<string, unknown>[] = [];
  const all = Promise.withResolvers<ToolAnswer[]>();
  let claimed = false;

  const emit = (event: Record<string, unknown>) => {
    events.push(event);
    for (const stream of streams)
      stream.write(`event: ${String(event['type'])}\ndata: ${JSON.stringify(event)}\n\n`);
  };
  const next = () => {
    const call = calls[answers.length];
    if (call) {
      const [name, input] = call;
      return emit({ type: 'agent.tool_use', id: `sevt_${answers.length}`, name, input, processed_at: now() });
    }
    emit({ type: 'session.status_terminated', id: 'sevt_end', processed_at: now() });
    all.resolve(answers);
  };
  const work = () => ({
    id: 'work_1',
    type: 'work',
    environment_id: 'env_1',
    data: { type: 'session', id: 'sesn_1' },
    state: claimed ? 'active' : 'queued',
    metadata: {},
    secret: Buffer.from(JSON.stringify({ sessions_token: SESSIONS_TOKEN })).toString('base64url'),
    created_at: now(),
    acknowledged_at: null,
    latest_heartbeat_at: null,
    started_at: null,
    stop_requested_at: null,
    stopped_at: null,
  });

  const routes: [RegExp, (body: Record<string, unknown>) => unknown][] = [
    [/^GET \/v1\/environments\/env_1\/work\/poll/, () => (claimed ? null : ((claimed = true), work()))],
    [/^POST \/v1\/environments\/env_1\/work\/work_1\/ack/, work],
    [
      /^POST \/v1\/environments\/env_1\/work\/work_1\/heartbeat/,
      () => ({
        type: 'work_heartbeat',
        last_heartbeat: now(),
        lease_extended: true,
        state: 'active',
        ttl_seconds: 60,
      }),
    ],
    [/^POST \/v1\/environments\/env_1\/work\/work_1\/stop/, () => (stopped.push('work_1'), work())],
    [
      /^GET \/v1\/sessions\/sesn_1(\?|$)/,
      () => ({ id: 'sesn_1', type: 'session', agent: { skills: [] }, resources: [] }),
    ],
    [/^GET \/v1\/sessions\/sesn_1\/events(\?|$)/, () => ({ data: events, next_page: null })],
    [
      /^POST \/v1\/sessions\/sesn_1\/events/,
      ({ events: sent }) => {
        for (const { tool_use_id: id, is_error: isError = false, content = [] } of sent as SentResult[]) {
          // What is sent twice is one answer.
          if (id !== `sevt_${answers.length}`) continue;
          answers.push({ isError, text: content.map((block) => block.text ?? block.type).join('\n') });
          next();
        }
        return { data: [] };
      },
    ],
  ];

  const server = createServer((request, response) => void serve(request, response));
  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const line = `${request.method} ${request.url}`;
    const wanted = line.includes('/work/poll') || line.includes('/ack') ? ENVIRONMENT_KEY : SESSIONS_TOKEN;
    if (request.headers.authorization !== `Bearer ${wanted}`) return void response.writeHead(401).end('{}');
    if (line.startsWith('GET /v1/sessions/sesn_1/events/stream')) {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      streams.add(response);
      if (events.length === 0) next();
      return;
    }
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const route = routes.find(([pattern]) => pattern.test(line));
    const status = route ? 200 : 404;
    const answer = route?.[1](body === '' ? {} : (JSON.parse(body) as Record<string, unknown>)) ?? null;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  }
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    environmentKey: ENVIRONMENT_KEY,
    sessionsToken: SESSIONS_TOKEN,
    results: all.promise,
    stopped,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}
