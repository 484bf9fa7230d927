import { setTimeout as sleep } from 'node:timers/promises';
import { attempt, command } from './command.ts';

export interface Dataset {
  /** With its snapshot after an `@`, if it is one. */
  name: string;
  /** The snapshot that it is a clone of. */
  origin?: string;
  /** Was removed, and is there for its snapshots only. */
  gone: boolean;
}

/** Marks a dataset as ours, with the folder that it belongs to. */
export const OWNER = 'cay:dir';
/** Marks a dataset that was removed. */
const GONE = 'cay:gone';

/** All that is below `base`, in the order of making as far as a dataset's own snapshots go. */
export async function listDatasets(base: string): Promise<Dataset[]> {
  const text = await command(['zfs', 'list', '-H', '-r', '-t', 'filesystem,snapshot', '-o', `name,origin,${GONE}`, base]);
  return text
    .split('\n')
    .map((line) => line.split('\t'))
    .filter(([name]) => name?.startsWith(`${base}/`))
    .map(([name, origin, gone]) => ({ name: name!, ...(origin !== '-' && { origin: origin! }), gone: gone === 'yes' }));
}

/** A dataset's own snapshots by their full names, the oldest first. */
export async function listSnapshots(dataset: string): Promise<string[]> {
  const text = await command(['zfs', 'list', '-H', '-r', '-d', '1', '-t', 'snapshot', '-o', 'name', dataset]);
  return text.split('\n').filter((name) => name !== '');
}

/** Hides a dataset from the next open. One step, after which it counts as removed. */
export async function markGone(dataset: string): Promise<void> {
  await command(['zfs', 'set', `${GONE}=yes`, dataset]);
}

/** Properties of one dataset as numbers and words that are meant for programs. */
export async function readProperties(dataset: string, ...properties: string[]): Promise<string[]> {
  const text = await command(['zfs', 'get', '-H', '-p', '-o', 'value', properties.join(','), dataset]);
  return text.trimEnd().split('\n');
}

/** The owner's mark, or `undefined` where there is no such dataset. */
export async function readOwner(dataset: string): Promise<string | undefined> {
  const { exitCode, stdout, stderr } = await attempt(['zfs', 'get', '-H', '-o', 'value', OWNER, dataset]);
  if (exitCode === 0) return stdout.trimEnd();
  if (/does not exist/.test(stderr)) return undefined;
  return command(['zfs', 'get', '-H', '-o', 'value', OWNER, dataset]);
}

/** A dataset stays busy for a moment after it was unmounted. */
export async function whenFree(argv: readonly [string, ...string[]]): Promise<void> {
  for (let round = 0; round < 40; round++) {
    const { exitCode, stderr } = await attempt(argv);
    if (exitCode === 0) return;
    if (/does not exist/.test(stderr)) return;
    if (!/busy/.test(stderr)) break;
    await sleep(50);
  }
  await command(argv);
}
