import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { systemReason } from '@cay/sdk/system-error';
import { RunError, run } from '../../lib/run.ts';
import { lastWords } from '../runtimes/runtime-log.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';

const TREE = 'probe-ids';
const TIMEOUT_MS = 30_000;

export interface ShiftProbe {
  works: boolean;
  /** Why it does not work. */
  reason?: string;
}

/**
 * Tests whether a tree can be mounted with other ids than it is stored with: makes a tree and mounts it in
 * `dir`.
 */
export async function probeShift(
  trees: Pick<Snapshotter, 'prepare' | 'remove'>,
  dir: string,
  guestBinary: string,
): Promise<ShiftProbe> {
  const at = join(dir, 'mount');
  const log = join(dir, 'log');
  try {
    await mkdir(at, { recursive: true });
    const tree = await trees.prepare(TREE);
    const how = ['--tree', tree, '--at', at, '--log', log, '--shift', '100000:200000:65536'];
    await run(guestBinary, ['on-tree', ...how, '--', guestBinary, 'version'], { timeoutMs: TIMEOUT_MS });
    return { works: true };
  } catch (error) {
    const words = error instanceof RunError ? lastWords(await readFile(log, 'utf8').catch(() => '')) : '';
    return { works: false, reason: words || systemReason(error) };
  } finally {
    await trees.remove(TREE).catch(() => {});
    await rm(dir, { recursive: true, force: true });
  }
}
