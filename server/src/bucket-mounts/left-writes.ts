/**
 * What instances have written that have ended, and the bucket lacks. Their directories lie together, and are
 * tried again until the bucket has everything.
 */
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { inBackground } from '../lib/in-background.ts';
import { randomName } from '../lib/random-name.ts';
import type { BucketMountFacts, BucketOpening, MountState, Unwritten } from './bucket-mounts.ts';
import { factsIn, hasContents, type MountTable } from './mount-table.ts';
import { surveyMount } from './survey.ts';

export interface LeftWrites {
  /** Keeps the directory of a mount that has ended. */
  keep(directory: string): Promise<void>;
  /** Tries now, waits for so long, and resolves what is unwritten. What is under way by then goes on. */
  write(sandbox: SandboxId, patienceMs: number): Promise<Unwritten[]>;
  states(sandbox: SandboxId): Promise<MountState[]>;
  giveUp(sandbox: SandboxId): Promise<void>;
  /** Rejects `resource_exhausted` for a project that has left too much. */
  requireRoom(project: string): Promise<void>;
  close(): void;
}

export const LEFT = 'bucket-writes';
/** Says since when it is there. */
const ENDED = 'ended';
const TRY_EVERY_MS = 10_000;
/** Of one project: what is left takes files of the server's disk, also if they are empty. */
const MOST_MOUNTS = 256;
const MOST_FILES = 16_384;
/** Who has fixed nothing until then does not miss it. */
const KEEP_MS = 7 * 24 * 3600_000;

export function openLeftWrites({
  dir,
  opening,
  table,
  onError,
  firstMs = 1_000,
}: {
  dir: string;
  opening: BucketOpening;
  table: Pick<MountTable, 'tryOnce' | 'drop'>;
  onError(error: unknown): void;
  firstMs?: number;
}): LeftWrites {
  const place = join(dir, LEFT);
  /** Those that are being tried, so that nothing is removed that another still writes. */
  const busy = new Map<string, Promise<void>>();
  /** What the latest attempt has left. */
  const failures = new Map<string, Unwritten[]>();
  /** Projects whose turn goes on. A bucket that never answers holds up those of its own project alone. */
  const trying = new Set<string>();
  let isClosed = false;

  const names = () => readdir(place).catch(() => [] as string[]);

  function once(name: string): Promise<void> {
    const running = busy.get(name) ?? tryOne(name).finally(() => busy.delete(name));
    busy.set(name, running);
    return running;
  }

  async function tryOne(name: string): Promise<void> {
    const directory = join(place, name);
    const id = relative(dir, directory);
    const facts = await factsIn(directory).catch(() => undefined);
    if (!facts || !hasContents(directory)) return remove(name);
    let left: Unwritten[];
    try {
      left = await table.tryOnce(id);
    } catch (failure) {
      // The bucket itself cannot be opened.
      left = (await surveyMount(directory)).map((one) => ({ ...one, failure }));
    }
    failures.set(name, left);
    if (isClosed) return;
    await table.drop(id);
    if (left.length === 0) await remove(name);
    else if (await isOld(directory)) await lose(name, facts, left);
  }

  async function remove(name: string): Promise<void> {
    failures.delete(name);
    await rm(join(place, name), { recursive: true, force: true });
  }

  async function lose(name: string, facts: BucketMountFacts, left: readonly Unwritten[]): Promise<void> {
    for (const { key, failure } of left)
      opening.source?.failed(facts, { key, error: failure ?? new Error('It was given up'), lost: true });
    await remove(name);
  }

  async function ofSandbox(sandbox: SandboxId): Promise<{ name: string; facts: BucketMountFacts }[]> {
    const found = [];
    for (const name of await names()) {
      const facts = await factsIn(join(place, name)).catch(() => undefined);
      if (facts?.sandbox === sandbox) found.push({ name, facts });
    }
    return found;
  }

  /** As the latest attempt has left it, or as it lies there. */
  const unwritten = async (name: string) => failures.get(name) ?? surveyMount(join(place, name));

  async function tryProject(project: string, all: readonly string[]): Promise<void> {
    trying.add(project);
    try {
      for (const name of all) if (!isClosed) await once(name).catch(onError);
    } finally {
      trying.delete(project);
    }
  }

  async function tryAll(): Promise<void> {
    if (opening.source && !isClosed) {
      const ofProjects = new Map<string, string[]>();
      for (const name of await names()) {
        const { project = '' } = (await factsIn(join(place, name)).catch(() => undefined)) ?? {};
        ofProjects.set(project, [...(ofProjects.get(project) ?? []), name]);
      }
      for (const [project, all] of ofProjects)
        if (!trying.has(project)) inBackground(tryProject(project, all), onError);
    }
    if (isClosed) return;
    timer = setTimeout(
      () => inBackground(tryAll(), onError),
      opening.source ? TRY_EVERY_MS : firstMs,
    ).unref();
  }

  let timer = setTimeout(() => inBackground(tryAll(), onError), firstMs).unref();
  return {
    async keep(directory) {
      await mkdir(place, { recursive: true, mode: 0o700 });
      await writeFile(join(directory, ENDED), '');
      await rename(directory, join(place, randomName(20)));
    },
    async write(sandbox, patienceMs) {
      const left = await ofSandbox(sandbox);
      await Promise.race([
        Promise.allSettled(left.map(({ name }) => once(name))),
        sleep(patienceMs, undefined, { ref: false }),
      ]);
      return (await Promise.all(left.map(({ name }) => unwritten(name)))).flat();
    },
    async states(sandbox) {
      return Promise.all(
        (await ofSandbox(sandbox)).map(async ({ name, facts }) => ({
          facts,
          ended: true,
          unwritten: await unwritten(name),
        })),
      );
    },
    async giveUp(sandbox) {
      for (const { name, facts } of await ofSandbox(sandbox)) {
        const left = await unwritten(name);
        await table.drop(relative(dir, join(place, name)));
        await busy.get(name)?.catch(() => {});
        await lose(name, facts, left);
      }
    },
    async requireRoom(project) {
      let [mounts, files] = [0, 0];
      for (const name of await names()) {
        const facts = await factsIn(join(place, name)).catch(() => undefined);
        if (facts?.project !== project) continue;
        mounts++;
        files += (await readdir(join(place, name, 'spool')).catch(() => [])).length;
        if (mounts >= MOST_MOUNTS || files >= MOST_FILES)
          throw new CayError(
            'resource_exhausted',
            `Sandboxes of the project have left ${files} files in ${mounts} mounts that their buckets do not take`,
            {
              details: { mounts, files },
              hint: 'have the buckets take them, or give them up by stopping the sandboxes with --force',
            },
          );
      }
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

async function isOld(directory: string): Promise<boolean> {
  const since = await stat(join(directory, ENDED)).catch(() => undefined);
  return since !== undefined && since.mtimeMs < Date.now() - KEEP_MS;
}
