/**
 * What E2B's own clients speak, on the same port and the same control plane as our API. Requests are told
 * apart by the host of a sandbox, by the headers with which clients name one, and by paths that our API does
 * not have.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import type { Builds } from '../../control/templates/builds/build.ts';
import type { Control } from '../../control/control.ts';
import type { SandboxRecords } from '../../records/sandboxes.ts';
import type { TokenEpochs } from '../../control/tenants/token-epochs.ts';
import { inBackground } from '../../lib/in-background.ts';
import { networkOf } from '../../lib/network-of.ts';
import { malformedPath } from '../http/malformed-request.ts';
import type { PreviewAddress } from '../preview/preview-address.ts';
import type { PreviewProxyOptions } from '../preview/preview-proxy.ts';
import { refuseUpgrade } from '../http/refuse-upgrade.ts';
import type { Strangers } from '../http/authenticate.ts';
import type { RateLimit } from '../http/rate-limit.ts';
import { mount, type Env, type MountOptions } from '../http/route.ts';
import { sendJson } from '../http/send-json.ts';
import { traceOf } from '../http/trace.ts';
import type { Upgrade } from '../http/upgrades.ts';
import { accessTokens, signedFileOf } from './access-tokens.ts';
import { openInterpreter } from './code-interpreter/interpreter.ts';
import { answerEnvdCors } from './envd-cors.ts';
import { envd, type Refused } from './envd/envd.ts';
import { e2bError } from './e2b-error.ts';
import { notRunning } from './not-running.ts';
import { ports, type PortAddress } from './ports.ts';
import { parseE2bId } from './sandbox-id.ts';
import { signedBy } from './signed-by.ts';
import { e2bRoutes } from './rest/e2b-routes.ts';
import { preparedControl } from './rest/templates/prepared-control.ts';
import { uploadLinks } from './rest/templates/upload-links.ts';

export interface E2bOptions extends MountOptions {
  control: Control;
  builds: Builds;
  /** How often the access token of one sandbox may be used. */
  tokenLimit: RateLimit;
  /** How often one network address may come without what opens something. */
  strangers: Strangers;
  sandboxes: Pick<SandboxRecords, 'get' | 'list' | 'ids'>;
  /** What access tokens are derived from. */
  secret: Uint8Array;
  /** How clients reach the server, if not by the address that they came by. */
  publicUrl?: string;
  /** How often tokens were revoked. */
  epochs: TokenEpochs;
  /** Domains whose subdomains are ports of sandboxes. */
  domains: readonly string[];
  /** What hosts of ports end with where the client does not show another, with the port of this server. */
  domain: string;
  onRefused: Refused;
  /** What carries requests into sandboxes. */
  previews: Omit<PreviewProxyOptions, 'control' | 'isPrivate'>;
  log: Logger;
}

/** Whose a request is. */
export type Claim =
  | { kind: 'control' }
  | { kind: 'envd'; id: SandboxId }
  /** Which sandbox it is for stands only in what it is allowed with. */
  | { kind: 'unnamed' }
  /** It names a sandbox that cannot exist. */
  | { kind: 'nobody' }
  | { kind: 'port'; address: PortAddress }
  /** A port that is exposed, with rules that are the same whichever way it is named. */
  | { kind: 'preview'; address: PortAddress };

/** All but what is left to previews. */
export type OwnClaim = Exclude<Claim, { kind: 'preview' }>;

export interface E2b {
  /** Undefined if the request is not for this surface. */
  claim(request: IncomingMessage, address: PreviewAddress | undefined): Claim | undefined;
  handle(claim: OwnClaim, request: IncomingMessage, response: ServerResponse): Promise<void>;
  upgrade(claim: OwnClaim, request: IncomingMessage, socket: Duplex, head: Buffer, upgrade: Upgrade): void;
}

const ENVD_PORT = 49_983;
const CONTROL = /^\/(?:v[23]\/)?(?:sandboxes|templates|snapshots|volumes|secrets|teams)(?:[/?]|$)/;
const OF_SANDBOX = /^\/(?:v2\/)?sandboxes\/([^/?]{1,80})/;
const SERVICES = /^\/(?:process\.Process|filesystem\.Filesystem)\//;

export function openE2b(options: E2bOptions): E2b {
  const { control, builds, sandboxes, epochs, onRefused } = options;
  const tokens = accessTokens(options.secret, epochs.ofSandbox);
  const signers = signedBy(sandboxes, tokens);
  const inside = envd({
    control,
    sandboxes,
    tokens,
    budgets: options.budgets,
    tokenLimit: options.tokenLimit,
    strangers: options.strangers,
    bodyTimeoutMs: options.bodyTimeoutMs,
    onRefused,
  });
  inBackground(inside.adopt(), (error) => options.log.error({ err: error }, 'adopting commands'));
  const reach = ports({ control, sandboxes, tokens, onRefused, previews: options.previews });
  const suffixes = [...new Set([...options.domains, 'localhost'])].map((domain) => domain.toLowerCase());
  const telling = {
    ...tokens,
    envd(id: SandboxId) {
      const token = tokens.envd(id);
      signers.told(id, token);
      return token;
    },
  };

  /** A client that came by `api.<domain>` reaches sandboxes below that domain. */
  function domainOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
    const match = /^api\.(([^:]+)(?::\d+)?)$/.exec((headers.host ?? '').toLowerCase());
    return match && suffixes.includes(match[2]!) ? match[1]! : options.domain;
  }

  const app = new Hono<Env>();
  const interpreter = openInterpreter(control, builds, options.log);
  const routing = { control: preparedControl(control, builds, interpreter), tokens: telling, domainOf };
  const building = {
    control,
    builds,
    links: uploadLinks(options.secret, { epochOf: epochs.ofProject }),
    onRefused,
    strangers: options.strangers,
    interpreter,
    publicUrl: options.publicUrl,
  };
  for (const route of e2bRoutes({ routing, building })) mount(app, route, options);
  app.notFound(({ env, req }) => {
    // What needs a key tells strangers nothing, not even that it does not exist.
    options.authenticator.authenticate(env.incoming);
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
    return sendJson(response, body, status, headers);
  }

  /** Which sandbox a request means that names none but by what it was allowed. */
  function meant(request: IncomingMessage): SandboxId | undefined {
    const token = request.headers['x-access-token'];
    if (typeof token === 'string') return tokens.claimed(token);
    const problem = malformedPath(request.url ?? '/');
    if (problem) throw problem;
    const url = new URL(request.url ?? '/', 'http://sandbox');
    const asked = signedFileOf(request.method, url);
    return asked && signers.find(asked.file, asked.signature, networkOf(request.socket.remoteAddress));
  }

  function named(id: string, port: string | undefined, url: string): Claim {
    const sandbox = parseE2bId(id);
    const number = port === undefined ? ENVD_PORT : /^\d{1,5}$/.test(port) ? Number(port) : 0;
    if (!sandbox || !(number >= 1 && number <= 65_535)) return { kind: 'nobody' };
    if (number === ENVD_PORT) return { kind: 'envd', id: sandbox };
    const address = { target: { id: sandbox, port: number }, path: url, prefix: '' };
    return { kind: reach.isExposed(address) ? 'preview' : 'port', address };
  }

  return {
    claim(request, address) {
      const { url = '/', headers } = request;
      if (address) {
        if (!address.target || address.prefix !== '') return undefined;
        if (address.target.port === ENVD_PORT) return { kind: 'envd', id: address.target.id };
        const port = { ...address, target: address.target };
        return reach.has(port) ? { kind: 'port', address: port } : undefined;
      }
      const { 'e2b-sandbox-id': id, 'e2b-sandbox-port': port } = headers;
      if (typeof id === 'string') return named(id, typeof port === 'string' ? port : undefined, url);
      if (CONTROL.test(url)) return { kind: 'control' };
      const data =
        SERVICES.test(url) ||
        /^\/files(?:\?|$)/.test(url) ||
        (/^\/health(?:\?|$)/.test(url) && headers['x-access-token'] !== undefined);
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
        // Whatever the application answers says nothing about this server.
        traceOf(response).expected = true;
        return reach.handle(claim.address, request, response);
      }
      if (answerEnvdCors(request, response)) return;
      try {
        if (claim.kind === 'nobody') return notRunning(response);
        const id = claim.kind === 'envd' ? claim.id : meant(request);
        if (id) return await inside.handle(id, request, response);
        options.strangers.requireTurn(request);
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
    upgrade(claim, request, socket, head, upgrade) {
      upgrade.trace.route = 'e2bPort';
      if (claim.kind === 'port') return reach.upgrade(claim.address, request, socket, head, upgrade);
      upgrade.refused(refuseUpgrade(socket, new CayError('not_found', 'There is no WebSocket here')));
    },
  };
}
