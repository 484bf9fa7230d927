import { isIP } from 'node:net';
import { addressBytes } from './address-kind.ts';

/**
 * One notation for each address: groups as RFC 5952 writes them, and an IPv4 address that is mapped into IPv6
 * as the IPv4 address that it is. Nothing for what is no address, zone ids included.
 */
export function canonicalAddress(text: string): string | undefined {
  const family = isIP(text);
  if (family === 4) return text;
  if (family === 0 || text.includes('%')) return undefined;
  const bytes = addressBytes(text);
  const mapped = bytes.subarray(0, 10).every((byte) => byte === 0) && bytes[10] === 255 && bytes[11] === 255;
  return mapped ? bytes.subarray(12).join('.') : new URL(`http://[${text}]`).hostname.slice(1, -1);
}
