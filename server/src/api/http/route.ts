/**
 * A route: its parameters, its answers and its handler in one description. The same description validates
 * requests and becomes the OpenAPI document, so both always agree.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import { CayError } from '@cay/sdk/protocol';
import type { Context, Hono } from 'hono';
import { z } from 'zod';
import type { Principal, Role } from '../../control/tenants/principal.ts';
import type { Authenticator } from './authenticate.ts';
import type { BudgetKind, Budgets } from './budgets.ts';
import { invalid } from './error-answer.ts';
import { readJson } from './read-json.ts';
import { sendJson } from './send-json.ts';
import type { Settled } from './settled.ts';
import { traceOf, type Trace } from './trace.ts';

export interface Env {
  Bindings: HttpBindings;
}

export interface Answer {
  description: string;
  schema?: z.ZodType;
  /** Media types of bodies that are not JSON. */
  media?: readonly string[];
  /** Schema of one value in a streamed body. */
  events?: z.ZodType;
}

export interface Call<Params, Query, Body> {
  context: Context<Env>;
  request: IncomingMessage;
  response: ServerResponse;
  params: Params;
  query: Query;
  body: Body;
  principal: Principal;
  json<T>(value: T & Settled<T>, status?: number): Response;
  /** The answer 204. What the work resolved with is not sent: `empty(await work())`. */
  empty(done?: unknown): Response;
  /** Aborts when the caller disconnects. */
  readonly signal: AbortSignal;
}

/** Roles that may use a route, by its access. */
const ROLES = {
  key: ['admin', 'member'],
  admin: ['admin'],
  metrics: ['admin', 'metrics'],
} as const satisfies Record<string, readonly Role[]>;

type None = z.ZodObject<Record<never, never>>;

export interface RouteSpec<Params extends z.ZodType, Query extends z.ZodType, Body extends z.ZodType> {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** As OpenAPI writes it: `/v1/sandboxes/{id}`. */
  path: string;
  /** The operation's name in the OpenAPI document and in metrics. */
  name: string;
  summary: string;
  description?: string;
  tag: string;
  /** Default `key`: any API key but one of the role `metrics`. */
  access?: keyof typeof ROLES | 'open';
  /** Which budget of the project a call takes while it is under way. Default `call`. */
  budget?: BudgetKind;
  params?: Params;
  query?: Query;
  /** Schema of the JSON body. Without it no body is read. */
  body?: Body;
  /** Default 1 MiB. */
  maxBodyBytes?: number;
  /** The media type of a body that the handler reads as a stream. */
  rawBody?: string;
  headers?: Record<string, string>;
  answers: Record<number, Answer>;
  handle(call: Call<z.infer<Params>, z.infer<Query>, z.infer<Body>>): Response | Promise<Response>;
}

export type Route = RouteSpec<z.ZodType, z.ZodType, z.ZodType>;

export function route<
  Params extends z.ZodType = None,
  Query extends z.ZodType = None,
  Body extends z.ZodType = None,
>(spec: RouteSpec<Params, Query, Body>): Route {
  // `mount` calls a route only with values that its own schemas have parsed.
  return spec as unknown as Route;
}

export interface MountOptions {
  authenticator: Authenticator;
  budgets: Budgets;
  /** How long a JSON body may take to arrive. */
  bodyTimeoutMs: number;
  /** Called for every failed call of a route that changes something. */
  onFailure?(trace: Trace, error: unknown): void;
}

const DEFAULT_BODY_BYTES = 1024 * 1024;
const NO_QUERY = z.object({}).strict();
const DISCONNECTED = new CayError('cancelled', 'The caller disconnected');

export function mount(
  app: Hono<Env>,
  route: Route,
  { authenticator, budgets, bodyTimeoutMs: timeoutMs, onFailure }: MountOptions,
): void {
  const limits = { maxBytes: route.maxBodyBytes ?? DEFAULT_BODY_BYTES, timeoutMs };
  const path = route.path.replaceAll(/\{(\w+)\}/g, ':$1');
  const query = route.query ?? NO_QUERY;
  const ofSandbox = route.path.startsWith('/v1/sandboxes/{id}');
  const changes = route.method !== 'get';
  app.on(route.method.toUpperCase(), path, async (context) => {
    const trace = traceOf(context.env.outgoing);
    try {
      return await answer(context, trace);
    } catch (error) {
      if (changes) onFailure?.(trace, error);
      throw error;
    }
  });

  async function answer(context: Context<Env>, trace: Trace): Promise<Response> {
    const { incoming: request, outgoing: response } = context.env;
    trace.route = route.name;
    trace.path = route.path;
    if (ofSandbox) trace.sandbox = context.req.param('id');
    const access = route.access ?? 'key';
    if (access !== 'open') {
      trace.principal = await authenticator.authenticate(request, ROLES[access]);
      // A share of the budget is given back when the client disconnects, which has happened already here.
      if (response.destroyed) throw DISCONNECTED;
    }
    if (trace.principal) trace.share = budgets.take(trace.principal.project, route.budget ?? 'call');
    const handled = handle(context, trace, { request, response });
    trace.share?.until(handled);
    return handled;
  }

  async function handle(
    context: Context<Env>,
    { principal, share }: Trace,
    { request, response }: Pick<Call<unknown, unknown, unknown>, 'request' | 'response'>,
  ): Promise<Response> {
    if (share?.turn) await share.turn;
    let signal: AbortSignal | undefined;
    return route.handle({
      context,
      request,
      response,
      params: route.params ? parse(route.params, context.req.param(), 'path') : {},
      query: parse(query, queryOf(context), 'query'),
      body:
        route.body &&
        parse(
          route.body,
          (await readJson(request, {
            ...limits,
            owner: principal?.project,
            ...(share && { admit: share.parse }),
          })) ?? {},
          'body',
        ),
      // Open routes have no principal, and do not read it.
      principal: principal!,
      empty: () => context.body(null, 204),
      json: <T>(value: T & Settled<T>, status?: number) => sendJson<T>(response, value, status),
      get signal() {
        return (signal ??= abortOnClose(response));
      },
    });
  }
}

function parse(schema: z.ZodType, value: unknown, where: string): unknown {
  const result = schema.safeParse(value);
  if (!result.success) throw invalid(result.error, where, schema);
  return result.data;
}

/** A parameter that is given once is a string, one that is repeated is an array. */
function queryOf(context: Context<Env>): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = {};
  for (const [name, values] of Object.entries(context.req.queries()))
    query[name] = values.length === 1 ? values[0]! : values;
  return query;
}

function abortOnClose(response: ServerResponse): AbortSignal {
  const controller = new AbortController();
  // A complete answer leaves nothing to abort.
  const check = () => response.writableFinished || controller.abort(DISCONNECTED);
  if (response.closed || response.destroyed) check();
  else response.once('close', check);
  return controller.signal;
}
