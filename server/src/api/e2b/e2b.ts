/**
 * E2B's API and the services in its sandboxes, on the same port and the same control plane as our API.
 * Requests are recognised by the host of a sandbox, by headers that name a sandbox, and by paths that our API
 * does not have.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import type { Control } from '../../control/control.ts';
import { inBackground } from '../../lib/in-background.ts';
import { networkOf } from '../../lib/network-of.ts';
import { malformedPath } from '../http/malformed-request.ts';
import type { PreviewAddress } from '../preview/preview-address.ts';
import type { PreviewProxyOptions } from '../preview/preview-proxy.ts';
import { refuseUpgrade } from '../http/refuse-upgrade.ts';
import type { AnonymousClients } from '../http/authenticate.ts';
import type { RateLimit } from '../http/rate-limit.ts';
import { mount, type Env, type MountOptions } from '../http/route.ts';
import { sendJson } from '../http/send-json.ts';
import { traceOf } from '../http/trace.ts';
import type { Upgrade } from '../http/upgrades.ts';
import { accessTokens, signedFileOf } from './access-tokens.ts';
import { autoResume } from './auto-resume.ts';
import { answerEnvdCors } from './envd-cors.ts';
import type { Refused } from './envd/credentials.ts';
import { envd } from './envd/envd.ts';
import { e2bError, shouldRetry } from './e2b-error.ts';
import { notRunning } from './not-running.ts';
import { ports, type PortAddress } from './ports.ts';
import { parseE2bId } from './sandbox-id.ts';
import { signedBy } from './signed-by.ts';
import { e2bRoutes } from './rest/e2b-routes.ts';
import { preparedSandboxes } from './rest/templates/prepared-sandboxes.ts';
import { uploadLinks } from './rest/templates/upload-links.ts';

export interface E2bOptions extends MountOptions {
  control: Control;
  /** Rate limit of the access token of one sandbox. */
  tokenLimit: RateLimit;
  /** Limits requests of one network address that have no valid credential. */
  anonymous: AnonymousClients;
  /** Public address of the server. Default: the address that a client used. */
  publicUrl?: string;
  /** Domains whose subdomains are ports of sandboxes. */
  domains: readonly string[];
  /**
   * The domain below which ports are shown, with the port of this server, for clients that did not use
   * another.
   */
  domain: string;
  onRefused: Refused;
  /** Options of the proxy to ports. */
  previews: Omit<PreviewProxyOptions, 'control' | 'isPrivate'>;
  log: Logger;
}

/** The part of this surface that a request is for. */
export type Claim =
  | { kind: 'control' }
  | { kind: 'envd'; id: SandboxId }
  /** The request names its sandbox only by its token or signature. */
  | { kind: 'unnamed' }
  /** The request names a sandbox that cannot exist. */
  | { kind: 'impossible' }
  | { kind: 'port'; address: PortAddress }
  /** A port that our own API exposed. Its rules are those of previews, however it is named. */
  | { kind: 'preview'; address: PortAddress };

/** All claims but those of the preview proxy. */
export type OwnClaim = Exclude<Claim, { kind: 'preview' }>;

export interface E2b {
  /** Undefined if the request is not for this surface. */
  claim(request: IncomingMessage, address: PreviewAddress | undefined): Promise<Claim | undefined>;
  handle(claim: OwnClaim, request: IncomingMessage, response: ServerResponse): Promise<void>;
  /** Never rejects. */
  upgrade(
    claim: OwnClaim,
    request: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    upgrade: Upgrade,
  ): Promise<void>;
}

const ENVD_PORT = 49_983;
const CONTROL =
  /^\/(?:v[23]\/)?(?:sandboxes|templates|default-templates|snapshots|volumes|secrets|teams)(?:[/?]|$)/;
const HEALTH = /^\/health(?:\?|$)/;
const OF_SANDBOX = /^\/(?:v2\/)?sandboxes\/([^/?]{1,80})/;
const SERVICES = /^\/(?:process\.Process|filesystem\.Filesystem)\//;

export function openE2b(options: E2bOptions): E2b {
  const { control, onRefused } = options;
  const { epochs } = control.tokens;
  const secret = control.tokens.secret('e2b');
  const tokens = accessTokens(secret, epochs.ofSandbox);
  const signers = signedBy(control, tokens);
  const resumed = autoResume(control);
  const inside = envd({
    control,
    tokens,
    resumed,
    budgets: options.budgets,
    tokenLimit: options.tokenLimit,
    anonymous: options.anonymous,
    bodyTimeoutMs: options.bodyTimeoutMs,
    onRefused,
  });
  inBackground(inside.adopt(), (error) => options.log.error({ err: error }, 'adopting commands'));
  const reach = ports({ control, tokens, resumed, onRefused, previews: options.previews });
  const suffixes = [...new Set([...options.domains, 'localhost'])].map((domain) => domain.toLowerCase());
  const givenTokens = {
    ...tokens,
    async envd(id: SandboxId) {
      const token = await tokens.envd(id);
      signers.tokenGiven(id, token);
      return token;
    },
  };

  /** A client of `api.<domain>` reaches sandboxes below that domain. */
  function domainOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
    const match = /^api\.(([^:]+)(?::\d+)?)$/.exec((headers.host ?? '').toLowerCase());
    return match && suffixes.includes(match[2]!) ? match[1]! : options.domain;
  }

  const app = new Hono<Env>();
  const routing = {
    control,
    sandboxes: preparedSandboxes(control),
    tokens: givenTokens,
    domainOf,
  };
  const building = {
    control,
    links: uploadLinks(secret, { epochOf: epochs.ofProject }),
    onRefused,
    anonymous: options.anonymous,
    publicUrl: options.publicUrl,
  };
  for (const route of e2bRoutes({ routing, building })) mount(app, route, options);
  app.notFound(async ({ env, req }) => {
    // Anonymous clients learn nothing about paths, not even that they do not exist.
    await options.authenticator.authenticate(env.incoming);
    return refuse(
      env.outgoing,
      new CayError('not_found', `There is no ${req.method} ${req.path.slice(0, 200)}`),
    );
  });
  app.onError((error, context) => refuse((context.env as Env['Bindings']).outgoing, error));
  const listener = getRequestListener((request, env) => app.fetch(request, env as Env['Bindings']), {
    overrideGlobalObjects: false,
  });

  function refuse(response: ServerResponse, error: unknown): Response {
    const { status, headers, body, cause } = e2bError(error);
    if (cause !== undefined) traceOf(response).error = cause;
    return sendJson(response, body, status, { ...headers, 'Should-Retry': String(shouldRetry(error)) });
  }

  /** The sandbox of a request that names it only by its token or signature. */
  async function meant(request: IncomingMessage): Promise<SandboxId | undefined> {
    const token = request.headers['x-access-token'];
    if (typeof token === 'string') return tokens.claimed(token);
    const problem = malformedPath(request.url ?? '/');
    if (problem) throw problem;
    const url = new URL(request.url ?? '/', 'http://sandbox');
    const asked = signedFileOf(request.method, url);
    return asked && signers.find(asked.file, asked.signature, networkOf(request.socket.remoteAddress));
  }

  async function named(id: string, port: string | undefined, url: string): Promise<Claim> {
    const sandbox = parseE2bId(id);
    const number = port === undefined ? ENVD_PORT : /^\d{1,5}$/.test(port) ? Number(port) : 0;
    if (!sandbox || !(number >= 1 && number <= 65_535)) return { kind: 'impossible' };
    if (number === ENVD_PORT) return { kind: 'envd', id: sandbox };
    const address = { target: { id: sandbox, port: number }, path: url, prefix: '' };
    return { kind: (await reach.isExposed(address)) ? 'preview' : 'port', address };
  }

  return {
    async claim(request, address) {
      const { url = '/', headers } = request;
      if (address) {
        if (!address.target || address.prefix !== '') return undefined;
        if (address.target.port === ENVD_PORT) return { kind: 'envd', id: address.target.id };
        const port = { ...address, target: address.target };
        return (await reach.has(port)) || !(await reach.exists(port))
          ? { kind: 'port', address: port }
          : undefined;
      }
      const { 'e2b-sandbox-id': id, 'e2b-sandbox-port': port } = headers;
      if (typeof id === 'string') return named(id, typeof port === 'string' ? port : undefined, url);
      if (CONTROL.test(url)) return { kind: 'control' };
      if (HEALTH.test(url) && headers['x-access-token'] === undefined) return { kind: 'control' };
      const data = SERVICES.test(url) || /^\/files(?:\?|$)/.test(url) || HEALTH.test(url);
      return data ? { kind: 'unnamed' } : undefined;
    },
    async handle(claim, request, response) {
      if (claim.kind === 'control') {
        const named = OF_SANDBOX.exec(request.url ?? '')?.[1];
        if (named !== undefined) traceOf(response).sandbox = parseE2bId(named) ?? named;
        const problem = malformedPath(request.url ?? '/');
        if (problem) return void refuse(response, problem);
        return listener(request, response);
      }
      if (claim.kind === 'port') {
        traceOf(response).route = 'e2bPort';
        traceOf(response).sandbox = claim.address.target.id;
        traceOf(response).endless = true;
        // The status of the application says nothing about this server.
        traceOf(response).expected = true;
        return reach.handle(claim.address, request, response);
      }
      if (answerEnvdCors(request, response)) return;
      try {
        if (claim.kind === 'impossible') return notRunning(response);
        const id = claim.kind === 'envd' ? claim.id : await meant(request);
        if (id) return await inside.handle(id, request, response);
        options.anonymous.requireTurn(request);
        const error = new CayError(
          'unauthenticated',
          'Neither an access token nor a signature names a sandbox',
        );
        onRefused(request, error);
        refuse(response, error);
      } catch (error) {
        refuse(response, error);
      }
    },
    async upgrade(claim, request, socket, head, upgrade) {
      upgrade.trace.route = 'e2bPort';
      if (claim.kind === 'port') return reach.upgrade(claim.address, request, socket, head, upgrade);
      upgrade.refused(refuseUpgrade(socket, new CayError('not_found', 'There is no WebSocket here')));
    },
  };
}
