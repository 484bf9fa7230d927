/**
 * Ports of sandboxes that E2B clients created. They are public, as at E2B, unless the client turned that off;
 * then they need the traffic token. Ports of all other sandboxes are previews, with rules of their own.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CayError, isCayError, type SandboxId } from '@cay/sdk/protocol';
import type { Control, EnteredSandbox } from '../../control/control.ts';
import { tokenPrincipal } from '../../control/tenants/principal.ts';
import type { PreviewAddress } from '../preview/preview-address.ts';
import { previewProxy, type PreviewProxy, type PreviewProxyOptions } from '../preview/preview-proxy.ts';
import { refuseUpgrade } from '../http/refuse-upgrade.ts';
import { sendJson } from '../http/send-json.ts';
import { traceOf } from '../http/trace.ts';
import type { AccessTokens } from './access-tokens.ts';
import { INTERPRETER_PORT } from './code-interpreter/interpreter.ts';
import { e2bError } from './e2b-error.ts';
import type { Refused } from './envd/envd.ts';
import { MASK_HOST, PUBLIC_TRAFFIC, isE2bSandbox, isReachable } from './labels.ts';
import { NOT_FOUND, notRunning } from './not-running.ts';

export interface PortAddress extends PreviewAddress {
  target: { id: SandboxId; port: number };
}

export interface Ports {
  /** Whether the rules of this file apply to the port. */
  has(address: PortAddress): Promise<boolean>;
  /** Whether our own API exposed the port. Then the rules of previews apply. */
  isExposed(address: PortAddress): Promise<boolean>;
  handle(address: PortAddress, request: IncomingMessage, response: ServerResponse): Promise<void>;
  /** Never rejects. */
  upgrade(...given: Parameters<PreviewProxy['upgrade']>): Promise<void>;
}

export interface PortsOptions {
  control: Control;
  tokens: AccessTokens;
  onRefused: Refused;
  previews: Omit<PreviewProxyOptions, 'control' | 'isPrivate'>;
}

/** Characters of a Host header. Labels may come from an imported archive, so they are checked. */
const HOST = /^[A-Za-z0-9.:_-]{1,253}$/;

export function ports({ control, tokens, onRefused, previews }: PortsOptions): Ports {
  const gone = new CayError('unavailable', NOT_FOUND);

  /** Decides from the headers of the request. The proxy removes tokens before the application sees them. */
  async function admit({ id, port }: PortAddress['target'], request: IncomingMessage): Promise<void> {
    const row = await control.lookup(id);
    const { 'x-access-token': access, 'e2b-traffic-access-token': traffic } = request.headers;
    if (!row) throw gone;
    const given = (header: string | string[] | undefined) =>
      typeof header === 'string' ? header : undefined;
    const allowed = (await tokens.isEnvd(id, given(access))) || (await tokens.isTraffic(id, given(traffic)));
    // A client that reaches the code interpreter runs code, so its port is never public.
    const isOpen = row.labels[PUBLIC_TRAFFIC] === 'true' && port !== INTERPRETER_PORT;
    if (!isOpen && !allowed) {
      const error = new CayError('permission_denied', 'The traffic access token is missing or wrong');
      onRefused(request, error, row);
      throw error;
    }
    if (!isReachable(row)) throw gone;
    const mask = row.labels[MASK_HOST]?.replaceAll('${PORT}', String(port));
    if (mask !== undefined && HOST.test(mask)) request.headers.host = mask;
  }

  const proxy = previewProxy({
    ...previews,
    isPrivate: async () => false,
    control: {
      async preview(id) {
        const row = await control.lookup(id);
        if (!row) throw gone;
        return (await control.enter(tokenPrincipal(row), id)).guest;
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
          return void sendJson(response, body, status, headers);
        }
        const stopped = error === gone || error.code === 'failed_precondition';
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
        const { status, body } = e2bError(error);
        upgrade.refused(refuseUpgrade(socket, error, { status, body }));
        return;
      }
      proxy.upgrade(address, request, socket, head, upgrade);
    },
  };
}
