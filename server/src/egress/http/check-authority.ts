import { Denial } from '../carrier/denial.ts';
import { normalizeName } from '../rules/parse-name.ts';
import type { Header } from './exchange.ts';

export interface Reached {
  readonly name: string | undefined;
  readonly address: string | undefined;
  readonly port: number;
}

/**
 * Host has to be what the policy was asked for. Answers what is written in it. Throws a `Denial`. A program
 * that chose an address may name a host that `checkDenied` does not refuse.
 */
export function checkAuthority(
  authorities: readonly string[],
  { name, address, port }: Reached,
  secure: boolean,
  checkDenied: (name: string | undefined) => void,
): string {
  const suffix = port === (secure ? 443 : 80) ? '' : `:${port}`;
  const hosts = authorities.map((text) => /^(.*?)(?::(\d{1,5}))?$/s.exec(text)!);
  const first = hosts[0];
  if (first === undefined) throw new Denial('name_mismatch', 'The request has no Host');
  if (hosts.some(([, , at]) => at !== undefined && Number(at) !== port))
    throw new Denial('name_mismatch', `The request names another port than ${port} in Host`);
  if (name !== undefined) {
    const other = hosts.find(([, host = '']) => normalizeName(host) !== name);
    if (other)
      throw new Denial(
        'name_mismatch',
        `The connection is to ${name}, and the request names "${other[1]!.slice(0, 100)}" in Host`,
      );
    return `${name}${suffix}`;
  }
  const host = first[1]!;
  if (hosts.some(([, one]) => one !== host))
    throw new Denial('name_mismatch', 'The request names more than one host');
  const named = normalizeName(host);
  checkDenied(named);
  if (named !== undefined) return `${named}${suffix}`;
  return `${address!.includes(':') ? `[${address}]` : address}${suffix}`;
}

/** By names in lower case, repeated ones joined. */
export function headerMap(headers: readonly Header[]): Map<string, string> {
  const map = new Map<string, string>();
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    const known = map.get(lower);
    map.set(lower, known === undefined ? value : `${known}, ${value}`);
  }
  return map;
}
