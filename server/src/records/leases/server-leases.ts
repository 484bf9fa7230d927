import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomic } from '../../lib/atomic-file.ts';
import type { Records } from '../records.ts';
import { leaseHolder, type LeaseHolder } from './lease-holder.ts';

const FILE = 'server-id';
const TTL_MS = 15_000;

/**
 * The leases of this run of a server; undefined where no other server can open the records, because the lock
 * of the data directory keeps it out.
 *
 * A holder is named after its data directory and its run. The caller has the lock of the data directory, so
 * an earlier run of it has ended, however: its leases are taken over at once. Those of a server with another
 * data directory expire.
 */
export async function openServerLeases(
  records: Records,
  dataDir: string,
  onError: (error: unknown) => void,
): Promise<LeaseHolder | undefined> {
  if (records.driver === 'sqlite') return undefined;
  const server = await serverId(dataDir);
  await records.leases.releaseOf(`${server}/`);
  return leaseHolder(records, { holder: `${server}/${randomUUID()}`, ttlMs: TTL_MS, onError });
}

async function serverId(dataDir: string): Promise<string> {
  const path = join(dataDir, FILE);
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const id = randomUUID();
  await writeFileAtomic(path, `${id}\n`, { mode: 0o600 });
  return id;
}
