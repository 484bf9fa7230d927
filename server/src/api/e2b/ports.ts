/**
 * Ports of sandboxes that E2B's clients made: whoever knows the host's name reaches them, as there, unless their maker wished
 * otherwise; then it takes the traffic token. Ports of all other sandboxes are previews, with rules of their own.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CayError, isCayError, type SandboxId } from '@cay/sdk/protocol';
import type { Control } from '../../control/contract.ts';
import type { SandboxRecords } from '../../control/records/sandboxes.ts';
import type { PreviewAddress } from '../preview/preview-address.ts';
import { previewProxy, type PreviewProxy } from '../preview/preview-proxy.ts';
import { sendJson } from '../send-json.ts';
import type { AccessTokens } from './access-tokens.ts';
import { e2bError } from './e2b-error.ts';
import type { Refused } from './envd/envd.ts';
import { MASK_HOST, PUBLIC_TRAFFIC, isMadeHere, isReachable } from './labels.ts';
import { memberOf } from './member-of.ts';
import { NOT_FOUND, notRunning } from './not-running.ts';

export interface PortAddress extends PreviewAddress {
  target: { id: SandboxId; port: number };
}

export interface Ports {
  /** Whether this is a port that is reached by the rules here. */
  has(address: PortAddress): boolean;
  handle(address: PortAddress, request: IncomingMessage, response: ServerResponse): Promise<void>;
  upgrade: PreviewProxy['upgrade'];
}

export interface PortsOptions {
  control: Control;
  sandboxes: Pick<SandboxRecords, 'get'>;
  tokens: AccessTokens;
  onRefused: Refused;
}

export function ports({ control, sandboxes, tokens, onRefused }: PortsOptions): Ports {
  const gone = new CayError('unavailable', NOT_FOUND);

  /** What the request may do is decided from its headers. Tokens of ours go no further: the application inside is not to have them. */
  function admit({ id, port }: PortAddress['target'], request: IncomingMessage): void {
    const row = sandboxes.get(id);
    const { 'x-access-token': access, 'e2b-traffic-access-token': traffic } = request.headers;
    delete request.headers['e2b-traffic-access-token'];
    const holder = typeof access === 'string' ? tokens.claimed(access) : undefined;
    const isOurs = holder !== undefined && tokens.isEnvd(holder, access as string);
    // An application may have a use of its own for a header of this name.
    if (isOurs) delete request.headers['x-access-token'];
    if (!row) throw gone;
    const allowed = (isOurs && holder === id) || tokens.isTraffic(id, typeof traffic === 'string' ? traffic : undefined);
    if (row.labels[PUBLIC_TRAFFIC] !== 'true' && !allowed) {
      const error = new CayError('permission_denied', 'The traffic access token is missing or wrong');
      onRefused(request, error, row);
      throw error;
    }
    if (!isReachable(row)) throw gone;
    const mask = row.labels[MASK_HOST];
    if (mask !== undefined) request.headers.host = mask.replaceAll('${PORT}', String(port));
  }

  const proxy = previewProxy({
    async preview(id) {
      const row = sandboxes.get(id);
      if (!row) throw gone;
      return (await control.enter(memberOf(row), id)).guest;
    },
  });

  return {
    has({ target: { id, port } }) {
      const row = sandboxes.get(id);
      return row !== undefined && isMadeHere(row) && !row.ports.some((exposed) => exposed.port === port);
    },
    async handle(address, request, response) {
      const { id, port } = address.target;
      try {
        admit(address.target, request);
        await proxy.handle(address, request, response);
      } catch (error) {
        if (response.headersSent) return void response.destroy();
        if (!isCayError(error, 'unavailable') && !isCayError(error, 'failed_precondition')) {
          const { status, body } = e2bError(error);
          return void sendJson(response, body, status);
        }
        const stopped = error === gone || error.code === 'failed_precondition';
        notRunning(response, id, { port, ...(!stopped && { message: 'The sandbox is running but port is not open' }) });
      }
    },
    upgrade(address, request, socket, head, upgrade) {
      try {
        admit(address.target!, request);
      } catch (error) {
        upgrade.refused(403);
        const { status, body } = e2bError(error);
        socket.end(`HTTP/1.1 ${status} Refused\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n${JSON.stringify(body)}`);
        return;
      }
      proxy.upgrade(address, request, socket, head, upgrade);
    },
  };
}
