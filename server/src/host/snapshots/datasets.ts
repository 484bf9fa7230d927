import { CayError } from '@cay/sdk/protocol';
import { poll } from '../../lib/poll.ts';
import { Semaphore } from '../../lib/semaphore.ts';
import { attempt, command } from './command.ts';

export interface Dataset {
  /** With the name of its snapshot after an `@`, if it is one. */
  name: string;
  /** The snapshot that it was cloned from. */
  origin?: string;
  /** Removed, and kept only for its snapshots. */
  gone: boolean;
}

/** ZFS serialises these operations anyway, and its FUSE server may hang when they run concurrently. */
const turn = new Semaphore(1);

/** Runs `zfs` and resolves with its output. Rejects if it fails. */
export function zfs(...args: string[]): Promise<string> {
  return turn.run(() => command(['zfs', ...args]));
}

/** Like `zfs`, but resolves also if it fails. */
export function tryZfs(...args: string[]): ReturnType<typeof attempt> {
  return turn.run(() => attempt(['zfs', ...args]));
}

/** Property that marks a dataset as ours, with its directory as the value. */
export const OWNER = 'cay:dir';
/** Property that marks a removed dataset. */
const GONE = 'cay:gone';

/** Everything below `base`; the snapshots of a dataset in the order of their creation. */
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

/** The full names of a dataset's snapshots, oldest first. */
export async function listSnapshots(dataset: string): Promise<string[]> {
  const text = await zfs('list', '-H', '-r', '-d', '1', '-t', 'snapshot', '-o', 'name', dataset);
  return text.split('\n').filter((name) => name !== '');
}

/** Marks a dataset as removed, in one step: the next open ignores it. */
export async function markGone(dataset: string): Promise<void> {
  await zfs('set', `${GONE}=yes`, dataset);
}

/** Properties of one dataset, in the format for programs. */
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
 * A dataset stays busy for a moment after it was unmounted, and while a container starts that has seen its
 * mount. So this retries.
 */
export async function whenFree(...args: string[]): Promise<void> {
  const result = await poll(
    async () => {
      const { exitCode, stderr } = await tryZfs(...args);
      if (exitCode === 0 || /does not exist/.test(stderr)) return 'done';
      return /busy/.test(stderr) ? undefined : 'failed';
    },
    { timeoutMs: 15_000, delayMs: 50 },
  );
  // Once more, for the error that it throws.
  if (result !== 'done') await zfs(...args);
}

/**
 * Destroys all datasets below `base`. A clone goes before its origin, and a dataset that is busy for a moment
 * after others, so this goes over them until none is left. Rejects if nothing goes for 15 seconds.
 */
export async function destroyBelow(base: string): Promise<void> {
  let left = await listDatasets(base);
  while (left.length > 0) {
    const fewer = await poll(
      async () => {
        for (const { name } of left) if (!name.includes('@')) await tryZfs('destroy', '-r', name);
        const now = await listDatasets(base);
        return now.length < left.length ? now : undefined;
      },
      { timeoutMs: 15_000, delayMs: 50 },
    );
    if (fewer === undefined) throw new CayError('internal', `Cannot destroy dataset "${left[0]!.name}"`);
    left = fewer;
  }
}
