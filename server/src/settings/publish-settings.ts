import { isIP } from 'node:net';
import { UnitError } from '../lib/units.ts';

/** `none` is no address. */
export function publishAddressesIn(parts: string[]): string[] {
  if (parts.length === 1 && parts[0] === 'none') return [];
  const strange = parts.find((part) => isIP(part) === 0);
  if (strange !== undefined)
    throw new UnitError(`"${strange.slice(0, 200)}" is not an IP address, such as 127.0.0.1 or 0.0.0.0`);
  return parts;
}

/** `8000-8999`, or one port. */
export function publishPortsIn(text: string): [number, number] {
  const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const [low, high] = [Number(first), Number(last)];
  if (!(low >= 1 && low <= high && high <= 65_535))
    throw new UnitError('must be a range of ports, such as 8000-8999');
  return [low, high];
}
