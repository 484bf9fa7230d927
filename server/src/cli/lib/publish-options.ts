import { isIP } from 'node:net';
import type { CreateSandboxInput, PublishedPort } from '@cay/sdk/client';
import { usageError } from './failure.ts';
import { parsePort } from './units.ts';

export type Publish = NonNullable<CreateSandboxInput['publish']>[number];

/**
 * `80`, `8080:80`, `5353:53/udp` or `127.0.0.1:8080:80`, as `docker run --publish` has it; an IPv6 address is
 * in brackets.
 */
export function parsePublish(text: string): Publish {
  const [, bracketed, plain, hostPort, port, protocol] =
    /^(?:(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):(?=.*:))?(?:(\d{0,5}):)?(\d{1,5})(?:\/([a-z]+))?$/.exec(text) ??
    [];
  const address = bracketed ?? plain;
  const inside = Number(port);
  const outside = Number(hostPort ?? 0);
  if (!(inside >= 1 && inside <= 65_535 && outside <= 65_535) || (address !== undefined && !isIP(address)))
    throw usageError(
      `"${text}" is no pair of ports`,
      'give the port of the machine and the port inside, such as 8080:80 or 127.0.0.1:8080:80',
    );
  if (protocol !== undefined && protocol !== 'tcp' && protocol !== 'udp')
    throw usageError(
      `"${text}" asks for ${protocol}, and only TCP and UDP are published`,
      'write 5353:53/udp',
    );
  return {
    port: inside,
    hostPort: outside,
    protocol: protocol ?? 'tcp',
    ...(address !== undefined && { address }),
  };
}

/** A port of the machine that is published: `8080` or `5353/udp`. */
export function parseHostPort(text: string): { hostPort: number; protocol: 'tcp' | 'udp' } {
  const [, port = '', protocol = 'tcp'] = /^(.*?)(?:\/(tcp|udp))?$/.exec(text) ?? [];
  return { hostPort: parsePort(port), protocol: protocol as 'tcp' | 'udp' };
}

export const formatPublished = ({ address, hostPort, protocol }: PublishedPort): string =>
  `${address.includes(':') ? `[${address}]` : address}:${hostPort}${protocol === 'udp' ? '/udp' : ''}`;
