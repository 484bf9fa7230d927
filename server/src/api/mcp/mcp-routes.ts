/** `/mcp`: the Model Context Protocol over streamable HTTP, with the keys of the API. */
import { createMcpHandler, type McpHttpHandler } from '@modelcontextprotocol/server';
import { CayError } from '@cay/sdk/protocol';
import type { Context } from 'hono';
import type { Control } from '../../control/control.ts';
import type { Principal } from '../../control/tenants/principal.ts';
import type { Share } from '../http/budgets.ts';
import { readJson } from '../http/read-json.ts';
import { route, type Env, type Route } from '../http/route.ts';
import { traceOf } from '../http/trace.ts';
import { controlHost } from './control-host.ts';
import { mcpServer } from './mcp-server.ts';

export interface McpRoutesOptions {
  control: Control;
  version: string;
  /** Origins whose pages may call the API; `*` for all. */
  corsOrigins: readonly string[];
  onError(error: Error): void;
}

interface Caller {
  principal: Principal;
  share: Share | undefined;
}

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]']);

/** `write` takes 8 MiB, and JSON may need two characters for one. */
const MOST_BODY_BYTES = 20 * 1024 * 1024;
/** A body that is not larger is parsed by the protocol's own code, at once. */
const SMALL_BYTES = 64 * 1024;
const BODY_MS = 60_000;

export function mcpRoutes({ control, version, corsOrigins, onError }: McpRoutesOptions): Route[] {
  const handler: McpHttpHandler = createMcpHandler(
    ({ authInfo }) => {
      const { principal, share } = authInfo!.extra as unknown as Caller;
      return mcpServer(controlHost(control, principal, share?.hold), version);
    },
    { onerror: onError, maxRequestBodySize: MOST_BODY_BYTES, maxSubscriptions: 256 },
  );

  /** Pages are turned away, but for those of this machine: a page can make its own name lead here. */
  function checkOrigin(context: Context<Env>): void {
    const origin = context.req.header('origin');
    if (origin === undefined || corsOrigins.includes('*') || corsOrigins.includes(origin)) return;
    if (URL.canParse(origin) && LOOPBACK.has(new URL(origin).hostname)) return;
    throw new CayError('permission_denied', `Pages of "${origin.slice(0, 200)}" may not call /mcp`, {
      hint: 'the operator names the origins that may, with --cors-origin',
    });
  }

  const of = (method: 'get' | 'post' | 'delete', summary: string): Route =>
    route({
      method,
      path: '/mcp',
      name: method === 'post' ? 'mcp' : `mcp${method[0]!.toUpperCase()}${method.slice(1)}`,
      summary,
      description:
        'The revisions 2026-07-28 and 2025-11-25 are spoken, the latter without sessions. See the guide for the tools.',
      budget: 'stream',
      tag: 'mcp',
      ...(method === 'post' && { rawBody: 'application/json' }),
      answers: {
        200: { description: 'As the protocol says', media: ['application/json', 'text/event-stream'] },
      },
      async handle({ context, principal, request }) {
        checkOrigin(context);
        const trace = traceOf(context.env.outgoing);
        trace.endless = true;
        const authInfo = {
          token: '',
          clientId: principal.key ?? principal.project,
          scopes: [],
          extra: { principal, share: trace.share } satisfies Caller,
        };
        const announced = request.headers['content-length'];
        if (method !== 'post' || (announced !== undefined && Number(announced) <= SMALL_BYTES))
          return handler.fetch(context.req.raw, { authInfo });
        // As with every other body: counted for the project, and parsed in pieces.
        const parsedBody = await readJson(request, {
          maxBytes: MOST_BODY_BYTES,
          timeoutMs: BODY_MS,
          owner: principal.project,
          ...(trace.share && { admit: trace.share.parse }),
        });
        const { url, headers } = context.req.raw;
        return handler.fetch(new Request(url, { method: 'POST', headers }), { authInfo, parsedBody });
      },
    });
  return [
    of('post', 'Speak the Model Context Protocol'),
    of('get', 'Answered with 405: there are no sessions to listen to'),
    of('delete', 'Answered with 405: there are no sessions to end'),
  ];
}
