import { accessSync, constants, existsSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { CayError, isCayError, type SandboxId } from '@cay/sdk/protocol';
import { run } from '../lib/run.ts';
import type { BucketMounts, BucketOpening, MountState, Unwritten } from './bucket-mounts.ts';
import { endOfMount } from './fuse/answers.ts';
import { openLeftWrites } from './left-writes.ts';
import { factsIn, hasContents, messageOf, openMountTable, unwrittenOf, writeFacts } from './mount-table.ts';
import { probeMount } from './probe-mount.ts';
import { servePumps } from './serve-pumps.ts';
import { surveyMount } from './survey.ts';

export interface OpenBucketMountsOptions {
  /** Directories of mounts are below it. */
  dir: string;
  /** Absent: nobody will ever open buckets, and mounts of an earlier server end. */
  opening?: BucketOpening | undefined;
  /** Those that are below it, but for what has been left. */
  directories(): Promise<string[]>;
  /** The program that holds mounts. */
  guestBinary: string;
  /** What is written and not in a bucket yet, of one mount. */
  mostSpooled?: number;
  /** How long calls wait while no server is there. */
  patienceSeconds?: number;
  onError(error: unknown): void;
}

const GiB = 1024 ** 3;
const DEVICE = '/dev/fuse';
const PROBE_PLACE = 'bucket-probe';
/** How long the last writes of an instance may take before they are left to later. */
const LAST_MS = 20_000;
/** How long a start waits for what an earlier instance has left. */
const BEFORE_MS = 10_000;

export async function openBucketMounts(options: OpenBucketMountsOptions): Promise<BucketMounts> {
  const {
    directories,
    guestBinary,
    onError,
    opening = {},
    mostSpooled = 4 * GiB,
    patienceSeconds = 30,
  } = options;
  const dir = resolve(options.dir);
  const table = openMountTable({ dir, opening, mostSpooled, onError, isClosed: () => isClosed });
  const { drop, mountOf, mounts } = table;
  const left = openLeftWrites({ dir, opening, table, onError });
  let isClosed = false;

  const idOf = (directory: string) => relative(dir, resolve(directory));

  async function unmount(id: string, directory: string): Promise<void> {
    const mount = await mounts.get(id)?.catch(() => undefined);
    mount?.connection?.write(endOfMount());
    const at = join(directory, 'at');
    // Of a pump that was killed, or that has not heard it yet.
    await run('umount', ['-l', at], { timeoutMs: 10_000 }).catch(() => {});
  }

  /** The mounts that a sandbox has now. */
  async function mountsIn(sandbox: SandboxId): Promise<string[]> {
    const found: string[] = [];
    for (const directory of await directories()) {
      const facts = await factsIn(directory).catch(() => undefined);
      if (facts?.sandbox === sandbox) found.push(directory);
    }
    return found;
  }

  async function remove(directory: string): Promise<void> {
    await rm(join(directory, 'mount.json'), { force: true });
    await run('umount', ['-l', join(directory, 'at')], { timeoutMs: 10_000 }).catch(() => {});
    await rm(directory, { recursive: true, force: true });
  }

  /** Gives the bucket what nobody has closed. Resolves whether it has everything. */
  async function finish(id: string, directory: string): Promise<boolean> {
    if (!hasContents(directory)) return true;
    try {
      const { files } = await mountOf(id);
      for (const spool of files.spools.all()) spool.node.opens = 0;
      const unwritten = await table.write(id, LAST_MS);
      const facts = await factsIn(directory);
      for (const { key, failure } of unwritten)
        opening.source?.failed(facts, { key, error: failure ?? new Error('It was not tried'), lost: false });
      return unwritten.length === 0;
    } catch (error) {
      // While a server starts nobody opens buckets yet.
      if (!isCayError(error, 'unavailable')) onError(error);
      return false;
    }
  }

  // A probe's mount needs nobody who opens buckets.
  const wants = (id: string) => options.opening !== undefined || id === PROBE_PLACE;
  const pumps = await servePumps({ dir, table, wants, onError });
  /** What the try of a mount has found. */
  let failed: string | undefined;
  let probing: Promise<string | undefined> | undefined;
  const result: BucketMounts = {
    why() {
      try {
        accessSync(DEVICE, constants.R_OK | constants.W_OK);
        return failed;
      } catch {
        return `the machine has no ${DEVICE}`;
      }
    },
    probe() {
      const why = result.why();
      if (why !== undefined || isClosed) return Promise.resolve(why);
      return (probing ??= probeMount(result, join(dir, PROBE_PLACE)).then(
        (reason) => (failed = reason && `a mount was tried, and did not work: ${reason}`),
      ));
    },
    async begin(directory, facts) {
      const id = idOf(directory);
      if (!wants(id))
        throw new CayError(
          'unsupported',
          `Cannot mount bucket "${facts.bucket}": the server opens no buckets`,
        );
      const at = join(resolve(directory), 'at');
      await mkdir(at, { recursive: true, mode: 0o700 });
      const before = await left.write(facts.sandbox, BEFORE_MS);
      if (before.length > 0) throw notYet(before);
      await writeFacts(directory, facts);
      const mount = await mountOf(id, { isNew: true });
      await left.requireRoom(mount.facts.project!);
      // A bucket that cannot be read is noticed now, and not by programs.
      await mount.files.look();
      const access = facts.readOnly ? 'ro' : 'rw';
      try {
        await run(
          guestBinary,
          [
            'bucket-mount',
            ...['--at', at, '--socket', pumps.socket, '--id', id],
            ...['--access', access, '--patience', String(patienceSeconds)],
          ],
          { silent: true, timeoutMs: 30_000 },
        );
      } catch (error) {
        throw new CayError(
          'unavailable',
          `Cannot mount bucket "${facts.bucket}": ${(error as Error).message}`,
          {
            cause: error,
          },
        );
      }
      return at;
    },
    async end(directory) {
      const id = idOf(directory);
      if (!existsSync(join(directory, 'mount.json'))) {
        await rm(directory, { recursive: true, force: true });
        return;
      }
      await unmount(id, directory);
      const isWhole = await finish(id, directory);
      await drop(id);
      if (!isWhole) await left.keep(directory);
      await remove(directory);
    },
    async write(sandbox, patienceMs) {
      const live = await mountsIn(sandbox);
      const found = await Promise.all([
        left.write(sandbox, patienceMs),
        ...live.map((directory) => table.write(idOf(directory), patienceMs)),
      ]);
      return found.flat();
    },
    async states(sandbox) {
      const live = await mountsIn(sandbox);
      const found = await Promise.all(
        live.map(async (directory): Promise<MountState> => {
          const mount = await mounts.get(idOf(directory))?.catch(() => undefined);
          const facts = mount?.facts ?? (await factsIn(directory));
          return {
            facts,
            ended: false,
            unwritten: mount ? unwrittenOf(mount) : await surveyMount(directory),
          };
        }),
      );
      return [...found, ...(await left.states(sandbox))];
    },
    giveUp: (sandbox) => left.giveUp(sandbox),
    used(project) {
      const share = table.shareOf(project);
      return { mounts: share?.mounts ?? 0, bytes: share?.bytes ?? 0 };
    },
    async close() {
      isClosed = true;
      if (opening.mounts === result) opening.mounts = undefined;
      left.close();
      await pumps.close();
      for (const id of mounts.keys()) await drop(id);
    },
  };
  opening.mounts = result;
  return result;
}

function notYet(before: readonly Unwritten[]): CayError {
  const { bucket, path, failure } = before[0]!;
  return new CayError(
    'unavailable',
    `What the sandbox has written in "${path}" before is not in bucket "${bucket}" yet: ${messageOf(failure)}`,
    {
      details: { bucket, path, unwritten: before.length },
      hint: 'try again when the bucket can be written; to give it up, stop the sandbox with --force',
    },
  );
}
