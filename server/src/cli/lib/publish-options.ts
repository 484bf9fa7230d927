import { isIP } from 'node:net';
import type { CreateSandboxInput, PublishedPort } from '@cay/sdk/client';
import { usageError } from './failure.ts';

export type Publish = NonNullable<CreateSandboxInput['publish']>[number];

/** `80`, `8080:80` or `127.0.0.1:8080:80`, as `docker run --publish` has it; an IPv6 address is in brackets. */
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
  if (protocol !== undefined && protocol !== 'tcp')
    throw usageError(`"${text}" asks for ${protocol}, and only TCP is published`, 'leave the protocol out');
  return { port: inside, hostPort: outside, ...(address !== undefined && { address }) };
}

export const formatPublished = ({ address, hostPort }: PublishedPort): string =>
  `${address.includes(':') ? `[${address}]` : address}:${hostPort}`;
