/**
 * Readings of the past: one file for each sandbox, with a fixed number of slots. A reading has the slot of
 * its time, and takes the place of one that is older than all slots together. So a file never grows, nothing
 * has to be rewritten, and a server that is killed loses at most the reading that it was writing.
 */
import { mkdirSync } from 'node:fs';
import { open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isId, type SandboxId, type Stats } from '@cay/sdk/protocol';

/** In the order of the file. Numbers of 8 bytes; what is unknown is NaN. */
const FIELDS = [
  'atMs',
  'cpuUsageMs',
  'memoryBytes',
  'memoryLimitBytes',
  'pids',
  'diskBytes',
  'diskLimitBytes',
  'networkRxBytes',
  'networkTxBytes',
  'diskReadBytes',
  'diskWriteBytes',
] as const satisfies (keyof Stats)[];
const SLOT_BYTES = FIELDS.length * 8;
const SUFFIX = '.stats';

export type KeptStats = Pick<Stats, (typeof FIELDS)[number]>;

export interface StatRings {
  readonly intervalMs: number;
  readonly slots: number;
  write(id: SandboxId, stats: KeptStats): Promise<void>;
  /** The oldest first. */
  read(id: SandboxId, range: { fromMs: number; toMs: number }): Promise<KeptStats[]>;
  /** Removes the files of all others. */
  keepOnly(ids: ReadonlySet<string>): Promise<void>;
}

export function openStatRings(options: { directory: string; intervalMs: number; slots: number }): StatRings {
  const { directory, intervalMs, slots } = options;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const pathOf = (id: SandboxId) => join(directory, `${id}${SUFFIX}`);

  return {
    intervalMs,
    slots,

    async write(id, stats) {
      const bytes = Buffer.alloc(SLOT_BYTES);
      FIELDS.forEach((field, index) => bytes.writeDoubleLE(stats[field] ?? Number.NaN, index * 8));
      const slot = Math.floor(stats.atMs / intervalMs) % slots;
      const file = await open(pathOf(id), 'r+').catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
        return open(pathOf(id), 'w+', 0o600);
      });
      try {
        await file.write(bytes, 0, SLOT_BYTES, slot * SLOT_BYTES);
      } finally {
        await file.close();
      }
    },

    async read(id, { fromMs, toMs }) {
      const bytes = Buffer.alloc(slots * SLOT_BYTES);
      try {
        const file = await open(pathOf(id), 'r');
        try {
          await file.read(bytes, 0, bytes.length, 0);
        } finally {
          await file.close();
        }
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
        throw error;
      }
      const found: KeptStats[] = [];
      for (let slot = 0; slot < slots; slot++) {
        const value = (index: number) => bytes.readDoubleLE(slot * SLOT_BYTES + index * 8);
        const atMs = value(0);
        if (!(atMs > 0 && atMs >= fromMs && atMs <= toMs)) continue;
        const entries = FIELDS.map((field, index) => [
          field,
          Number.isNaN(value(index)) ? null : value(index),
        ]);
        found.push(Object.fromEntries(entries) as KeptStats);
      }
      return found.sort((one, other) => one.atMs - other.atMs);
    },

    async keepOnly(ids) {
      for (const name of await readdir(directory)) {
        const id = name.slice(0, -SUFFIX.length);
        if (name.endsWith(SUFFIX) && isId('sbx', id) && !ids.has(id))
          await rm(join(directory, name), { force: true });
      }
    },
  };
}
