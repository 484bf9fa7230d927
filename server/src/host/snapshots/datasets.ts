import { retry } from '../../lib/retry.ts';
import { Semaphore } from '../../lib/semaphore.ts';
import { attempt, command } from './command.ts';

export interface Dataset {
  /** With its snapshot after an `@`, if it is one. */
  name: string;
  /** The snapshot that it is a clone of. */
  origin?: string;
  /** Was removed, and is there for its snapshots only. */
  gone: boolean;
}

/**
 * ZFS does such operations one after the other anyway, and its server for FUSE may hang when they come at once.
 */
const turn = new Semaphore(1);

/** Runs `zfs`, which has to succeed, and resolves what it printed. */
export function zfs(...args: string[]): Promise<string> {
  return turn.run(() => command(['zfs', ...args]));
}

/** The same, where failing is an answer too. */
export function tryZfs(...args: string[]): ReturnType<typeof attempt> {
  return turn.run(() => attempt(['zfs', ...args]));
}

/** Marks a dataset as ours, with the folder that it belongs to. */
export const OWNER = 'cay:dir';
/** Marks a dataset that was removed. */
const GONE = 'cay:gone';

/** All that is below `base`, in the order of making as far as a dataset's own snapshots go. */
export async function listDatasets(base: string): Promise<Dataset[]> {
  const text = await zfs('list', '-H', '-r', '-t', 'filesystem,snapshot', '-o', `name,origin,${GONE}`, base);
  return text
    .split('\n')
    .map((line) => line.split('\t'))
    .filter(([name]) => name?.startsWith(`${base}/`))
    .map(([name, origin, gone]) => ({
      name: name!,
      ...(origin !== '-' && { origin: origin! }),
      gone: gone === 'yes',
    }));
}

/** A dataset's own snapshots by their full names, the oldest first. */
export async function listSnapshots(dataset: string): Promise<string[]> {
  const text = await zfs('list', '-H', '-r', '-d', '1', '-t', 'snapshot', '-o', 'name', dataset);
  return text.split('\n').filter((name) => name !== '');
}

/** Hides a dataset from the next open. One step, after which it counts as removed. */
export async function markGone(dataset: string): Promise<void> {
  await zfs('set', `${GONE}=yes`, dataset);
}

/** Properties of one dataset as numbers and words that are meant for programs. */
export async function readProperties(dataset: string, ...properties: string[]): Promise<string[]> {
  const text = await zfs('get', '-H', '-p', '-o', 'value', properties.join(','), dataset);
  return text.trimEnd().split('\n');
}

/** The owner's mark, or `undefined` where there is no such dataset. */
export async function readOwner(dataset: string): Promise<string | undefined> {
  const { exitCode, stdout, stderr } = await tryZfs('get', '-H', '-o', 'value', OWNER, dataset);
  if (exitCode === 0) return stdout.trimEnd();
  if (/does not exist/.test(stderr)) return undefined;
  return zfs('get', '-H', '-o', 'value', OWNER, dataset);
}

/**
 * A dataset stays busy for a moment after it was unmounted, and while a sandbox is started that has seen it
 * mounted.
 */
export async function whenFree(...args: string[]): Promise<void> {
  const result = await retry(
    async () => {
      const { exitCode, stderr } = await tryZfs(...args);
      if (exitCode === 0 || /does not exist/.test(stderr)) return 'done';
      return /busy/.test(stderr) ? undefined : 'failed';
    },
    { timeoutMs: 2_000, delayMs: 50 },
  );
  // Once more, for the error that it throws.
  if (result !== 'done') await zfs(...args);
}
