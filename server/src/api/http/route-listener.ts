import type { IncomingMessage, ServerResponse } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { CayError } from '@cay/sdk/protocol';
import { Hono } from 'hono';
import { failureResponse } from './answer-failure.ts';
import { openApiDocument } from './openapi.ts';
import { mount, type Env, type MountOptions, type Route } from './route.ts';
import { traceOf } from './trace.ts';

/** Answers requests by routes, and `/openapi.json` with the document that describes them. */
export function routeListener(
  routes: readonly Route[],
  { version, ...options }: MountOptions & { version: string },
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  const app = new Hono<Env>();
  for (const route of routes) mount(app, route, options);
  let document: string | undefined;
  app.get('/openapi.json', (context) => {
    traceOf(context.env.outgoing).route = 'openapi';
    return context.body((document ??= JSON.stringify(openApiDocument(routes, { version }))), 200, {
      'Content-Type': 'application/json',
    });
  });
  app.notFound((context) =>
    failureResponse(
      context.env.outgoing,
      new CayError('not_found', `There is no ${context.req.method} ${context.req.path.slice(0, 200)}`),
    ),
  );
  app.onError((error, context) => failureResponse((context.env as Env['Bindings']).outgoing, error));
  const listener = getRequestListener((request, env) => app.fetch(request, env as Env['Bindings']), {
    overrideGlobalObjects: false,
  });
  return async (request, response) => {
    await listener(request, response);
  };
}
