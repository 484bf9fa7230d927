import { CayError, type PublishPort } from '@cay/sdk/protocol';
import type { Policy } from './policy.ts';

/** Which addresses and ports of the server's machine may lead to ports of sandboxes. */
export interface Publishing {
  /** The first is used where a request names none. Empty: nothing may be published. */
  readonly addresses: readonly string[];
  /** The lowest and the highest. */
  readonly ports: readonly [number, number];
}

/** Ports below 1024 belong to services of the machine. */
export const LOOPBACK_ONLY: Publishing = { addresses: ['127.0.0.1'], ports: [1024, 65_535] };

/** The address that a port is published on. Throws `permission_denied`. */
export function requirePublishing(
  { publishing: { addresses, ports } }: Pick<Policy, 'publishing'>,
  { address, hostPort }: PublishPort,
): string {
  const [usual] = addresses;
  if (usual === undefined)
    throw new CayError('permission_denied', 'Ports of sandboxes may not be published on this machine', {
      hint: 'expose the port as a preview instead',
    });
  if (address !== undefined && !addresses.includes(address))
    throw new CayError(
      'permission_denied',
      `Ports of sandboxes may not be published on ${address}: only on ${addresses.join(', ')}`,
      { hint: 'the operator allows addresses with --publish-address' },
    );
  const [low, high] = ports;
  if (hostPort !== 0 && (hostPort < low || hostPort > high))
    throw new CayError(
      'permission_denied',
      `Port ${hostPort} of the machine may not lead to a sandbox: only ports from ${low} to ${high}`,
      { details: { hostPort, low, high }, hint: 'the operator allows ports with --publish-ports' },
    );
  return address ?? usual;
}
