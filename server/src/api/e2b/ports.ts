/**
 * Ports of sandboxes that E2B clients created. They are public, as at E2B, unless the client turned that off;
 * then they need the traffic token. Ports of all other sandboxes are previews, with rules of their own.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CayError, isCayError, type SandboxId } from '@cay/sdk/protocol';
import type { Control, EnteredSandbox } from '../../control/control.ts';
import { tokenPrincipal } from '../../control/tenants/principal.ts';
import type { PreviewAddress } from '../preview/preview-address.ts';
import { sendErrorPage, wantsPage } from '../preview/error-page.ts';
import type { AutoResume } from './auto-resume.ts';
import { previewProxy, type PreviewProxy, type PreviewProxyOptions } from '../preview/preview-proxy.ts';
import { refuseUpgrade } from '../http/refuse-upgrade.ts';
import { sendJson } from '../http/send-json.ts';
import { traceOf } from '../http/trace.ts';
import type { AccessTokens } from './access-tokens.ts';
import { INTERPRETER_PORT } from '../../control/interpreter/interpreter.ts';
import { e2bError } from './e2b-error.ts';
import { toE2bId } from './sandbox-id.ts';
import type { Refused } from './envd/credentials.ts';
import { MASK_HOST, PUBLIC_TRAFFIC, isE2bSandbox, isReachable } from './labels.ts';
import { NOT_FOUND, notRunning } from './not-running.ts';

export interface PortAddress extends PreviewAddress {
  target: { id: SandboxId; port: number };
}

export interface Ports {
  /** Whether the rules of this file apply to the port. */
  has(address: PortAddress): Promise<boolean>;
  /** Whether there is such a sandbox at all. Visitors of one that is gone get an answer that says so. */
  exists(address: PortAddress): Promise<boolean>;
  /** Whether our own API exposed the port. Then the rules of previews apply. */
  isExposed(address: PortAddress): Promise<boolean>;
  handle(address: PortAddress, request: IncomingMessage, response: ServerResponse): Promise<void>;
  /** Never rejects. */
  upgrade(...given: Parameters<PreviewProxy['upgrade']>): Promise<void>;
}

export interface PortsOptions {
  control: Control;
  tokens: AccessTokens;
  resumed: AutoResume;
  onRefused: Refused;
  previews: Omit<PreviewProxyOptions, 'control' | 'isPrivate'>;
}

const TRAFFIC_HEADER = 'e2b-traffic-access-token';
const BAD_GATEWAY = 502;
const GONE = { title: 'The sandbox was not found', text: 'It has ended, or it never was.' };
const CLOSED = {
  title: 'Nothing answers on this port',
  text: 'The sandbox runs, and no application in it listens here.',
};

const pageOf = (status: number) =>
  status === 403
    ? { title: 'A traffic access token is needed', text: `Send it in the header ${TRAFFIC_HEADER}.` }
    : { title: 'The sandbox cannot be reached', text: 'The server refused or failed to reach it.' };

/** Characters of a Host header. Labels may come from an imported archive, so they are checked. */
const HOST = /^[A-Za-z0-9.:_-]{1,253}$/;

export function ports({ control, resumed, tokens, onRefused, previews }: PortsOptions): Ports {
  const gone = new CayError('unavailable', NOT_FOUND);

  /** Decides from the headers of the request. The proxy removes tokens before the application sees them. */
  async function admit({ id, port }: PortAddress['target'], request: IncomingMessage): Promise<void> {
    const row = await control.lookup(id);
    const { 'x-access-token': access, [TRAFFIC_HEADER]: traffic } = request.headers;
    if (!row) throw gone;
    const given = (header: string | string[] | undefined) =>
      typeof header === 'string' ? header : undefined;
    const allowed = (await tokens.isEnvd(id, given(access))) || (await tokens.isTraffic(id, given(traffic)));
    // A client that reaches the code interpreter runs code, so its port is never public.
    const isOpen = row.labels[PUBLIC_TRAFFIC] === 'true' && port !== INTERPRETER_PORT;
    if (!isOpen && !allowed) {
      const error = new CayError(
        'permission_denied',
        `Sandbox is secured with traffic access token. ${
          traffic === undefined
            ? `Token header '${TRAFFIC_HEADER}' is missing`
            : `Provided token in header '${TRAFFIC_HEADER}' is invalid`
        }`,
      );
      onRefused(request, error, row);
      throw error;
    }
    if (!isReachable(row)) throw gone;
    const mask = row.labels[MASK_HOST]?.replaceAll('${PORT}', String(port));
    if (mask !== undefined && HOST.test(mask)) request.headers.host = mask;
  }

  /** A sandbox that cannot have a kernel has nothing on its port, and its client gets that answer. */
  async function ensureKernel({ guest, row }: Awaited<ReturnType<Control['enter']>>): Promise<void> {
    try {
      await control.interpreter.ensure(guest, row);
    } catch (error) {
      if (!isCayError(error, 'failed_precondition') || error.details['state'] !== undefined) throw error;
    }
  }

  const proxy = previewProxy({
    ...previews,
    isPrivate: async () => false,
    control: {
      async preview(id, port) {
        const row = await control.lookup(id);
        if (!row) throw gone;
        await resumed(row);
        const entered = await control.enter(tokenPrincipal(row), id);
        // A sandbox of any template runs code, if it has what that needs.
        if (port === INTERPRETER_PORT) await ensureKernel(entered);
        return entered.guest;
      },
      previewConnection: control.previewConnection,
    },
  });

  const exposes = (row: EnteredSandbox | undefined, port: number) =>
    row?.ports.some((exposed) => exposed.port === port) === true;

  return {
    async has({ target: { id, port } }) {
      const row = await control.lookup(id);
      return row !== undefined && isE2bSandbox(row) && !exposes(row, port);
    },
    exists: async ({ target }) => (await control.lookup(target.id)) !== undefined,
    isExposed: async ({ target: { id, port } }) => exposes(await control.lookup(id), port),
    async handle(address, request, response) {
      const { id, port } = address.target;
      try {
        await admit(address.target, request);
        await proxy.handle(address, request, response);
      } catch (error) {
        if (response.headersSent) return void response.destroy();
        if (!isCayError(error, 'unavailable') && !isCayError(error, 'failed_precondition')) {
          const { status, headers, body, cause } = e2bError(error);
          if (cause !== undefined) traceOf(response).error = cause;
          if (wantsPage(request)) return sendErrorPage(response, status, pageOf(status));
          return void sendJson(response, { sandboxId: toE2bId(id), ...body }, status, headers);
        }
        const stopped = error === gone || error.code === 'failed_precondition';
        if (wantsPage(request)) return sendErrorPage(response, BAD_GATEWAY, stopped ? GONE : CLOSED);
        notRunning(response, id, {
          port,
          ...(!stopped && { message: 'The sandbox is running but port is not open' }),
        });
      }
    },
    async upgrade(address, request, socket, head, upgrade) {
      try {
        await admit(address.target!, request);
      } catch (error) {
        const answer = e2bError(error);
        const status = error === gone ? BAD_GATEWAY : answer.status;
        const body = { sandboxId: toE2bId(address.target!.id), ...answer.body, code: status };
        upgrade.refused(refuseUpgrade(socket, error, { status, body }));
        return;
      }
      proxy.upgrade(address, request, socket, head, upgrade);
    },
  };
}
