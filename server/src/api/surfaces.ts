/**
 * Who answers a request: the application behind a preview, by Host or path; what E2B's clients speak, by
 * host, headers or path; or a route of our API.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { isCayError } from '@cay/sdk/protocol';
import { openE2b, type E2bOptions, type OwnClaim } from './e2b/e2b.ts';
import { answerCors } from './http/cors.ts';
import { malformed, malformedPath } from './http/malformed-request.ts';
import { routeListener } from './http/route-listener.ts';
import type { Trace } from './http/trace.ts';
import type { Upgrade } from './http/upgrades.ts';
import { sendPreviewError } from './preview/error-page.ts';
import { openConnections } from './preview/open-connections.ts';
import { previewAddresses, type PreviewAddress } from './preview/preview-address.ts';
import { previewProxy } from './preview/preview-proxy.ts';
import { restRoutes, type RestOptions } from './rest/rest-routes.ts';
import { openSockets } from './rest/sockets/sockets.ts';

export interface SurfacesOptions extends RestOptions, Omit<E2bOptions, 'previews'> {
  /** Open connections of visitors to one sandbox. */
  previewConnections: number;
  /** How long an application behind a preview may take until its answer begins. */
  previewAnswerMs: number;
}

export interface Surfaces {
  /** Rejects what could not be answered; the caller answers that. */
  answer(request: IncomingMessage, response: ServerResponse, trace: Trace): Promise<void>;
  /** Rejects what could not be answered; the caller answers that. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, upgrade: Upgrade): Promise<void>;
  /** Ends WebSockets. */
  close(): void;
}

/** Undefined: a route of our API. */
type Receiver = { preview: PreviewAddress } | { claim: OwnClaim } | undefined;

export function openSurfaces(options: SurfacesOptions): Surfaces {
  const { control } = options;
  const addresses = previewAddresses(options.domains);
  const carrying = {
    connections: openConnections(options.previewConnections),
    answerMs: options.previewAnswerMs,
  };
  const previews = previewProxy({
    ...carrying,
    control,
    isPrivate: async ({ id, port }) =>
      (await control.lookup(id))?.ports.some(
        (exposed) => exposed.port === port && exposed.visibility === 'private',
      ) === true,
  });
  const e2b = openE2b({ ...options, previews: carrying });
  const sockets = openSockets(options);
  const routes = routeListener(restRoutes(options), options);

  async function receiverOf(request: IncomingMessage): Promise<Receiver> {
    const address = addresses.of(request);
    const claim = await e2b.claim(request, address);
    if (claim?.kind === 'preview') return { preview: claim.address };
    if (claim) return { claim };
    return address && { preview: address };
  }

  return {
    async answer(request, response, trace) {
      const problem = malformed(request, { upgrade: false });
      if (problem) {
        // The next bytes on this connection may not be a request either.
        response.setHeader('Connection', 'close');
        throw problem;
      }
      const receiver = await receiverOf(request);
      if (receiver && 'preview' in receiver) {
        trace.route = 'preview';
        trace.sandbox = receiver.preview.target?.id;
        trace.endless = true;
        // The status of the application says nothing about this server.
        trace.expected = true;
        return previews.handle(receiver.preview, request, response).catch((error: unknown) => {
          if (!isCayError(error) || isCayError(error, 'internal') || response.headersSent) throw error;
          sendPreviewError(receiver.preview, request, response, error);
        });
      }
      if (receiver?.claim.kind === 'port') return e2b.handle(receiver.claim, request, response);
      response.setHeader('X-Content-Type-Options', 'nosniff');
      response.setHeader('X-Frame-Options', 'DENY');
      response.setHeader('Referrer-Policy', 'no-referrer');
      response.setHeader('Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'");
      if (receiver && receiver.claim.kind !== 'control') return e2b.handle(receiver.claim, request, response);
      if (answerCors(request, response, options.corsOrigins)) return;
      if (receiver) return e2b.handle(receiver.claim, request, response);
      const malformedTarget = malformedPath(request.url!);
      if (malformedTarget) throw malformedTarget;
      await routes(request, response);
    },

    async upgrade(request, socket, head, upgrade) {
      const problem = malformed(request, { upgrade: true });
      if (problem) throw problem;
      const receiver = await receiverOf(request);
      if (!receiver) return sockets.upgrade(request, socket, head, upgrade);
      if ('claim' in receiver) return e2b.upgrade(receiver.claim, request, socket, head, upgrade);
      upgrade.trace.route = 'preview';
      upgrade.trace.sandbox = receiver.preview.target?.id;
      previews.upgrade(receiver.preview, request, socket, head, upgrade);
    },

    close() {
      sockets.close();
    },
  };
}
