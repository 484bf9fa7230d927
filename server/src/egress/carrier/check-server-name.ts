import { normalizeName } from '../rules/parse-name.ts';
import type { ConnectionTarget } from './addresses.ts';
import { Denial } from './denial.ts';

/** Throws a `Denial` unless TLS asks for the name that the connection is to. */
export function checkServerName(
  { name }: ConnectionTarget,
  serverName: string | undefined,
  checkDenied: (name: string | undefined) => void,
): void {
  if (name === undefined) {
    if (serverName !== undefined) checkDenied(normalizeName(serverName));
    return;
  }
  if (serverName === undefined)
    throw new Denial(
      'name_mismatch',
      `The connection is to ${name}, and TLS begins without a server name (SNI)`,
    );
  if (normalizeName(serverName) !== name)
    throw new Denial('name_mismatch', `The connection is to ${name}, and TLS asks for "${serverName}" (SNI)`);
}
