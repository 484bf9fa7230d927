import type { EnforcementReport } from './protocol/index.ts';
import { connect, type ConnectOptions } from './transport.ts';

const pathOf = (platform: string) => `/v1/platforms/${encodeURIComponent(platform)}/enforcement`;

/** The last report of each runtime of a platform, the newest first. Needs an admin key. */
export async function enforcementReports(
  platform: string,
  options: ConnectOptions = {},
): Promise<EnforcementReport[]> {
  return (await connect(options).json<{ reports: EnforcementReport[] }>('GET', pathOf(platform))).reports;
}

/** Tries from inside a sandbox what a platform enforces. Takes a minute or two. Needs an admin key. */
export function runEnforcementReport(
  platform: string,
  { runtime, ...options }: ConnectOptions & { runtime?: string } = {},
): Promise<EnforcementReport> {
  return connect(options).json('POST', pathOf(platform), { json: runtime === undefined ? {} : { runtime } });
}
