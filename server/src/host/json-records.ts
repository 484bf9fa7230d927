/**
 * Records as one JSON file each, named by their ids and replaced in one step: after every change and before
 * every operation. All are in memory too, so reading one costs nothing.
 */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { ZodType } from 'zod';
import { readJson, writeFileAtomic } from '../lib/atomic-file.ts';
import { isDiskFull } from '../lib/disk-full.ts';

export interface JsonRecords<I extends string, R extends { id: I }> {
  readonly dir: string;
  readonly all: ReadonlyMap<I, R>;
  get(id: I): R | undefined;
  /**
   * Rejects `resource_exhausted` when the disk is full. With `undoable` a power loss may undo it: for an
   * intent whose beginnings a power loss undoes too.
   */
  save(record: R, options?: { undoable?: boolean }): Promise<void>;
  /**
   * Of what has happened and cannot be written now: it counts from here on, and goes to the disk with the
   * next `save`.
   */
  remember(record: R): void;
  delete(id: I): Promise<void>;
}

export interface JsonRecordsOptions<R> {
  /** The record as it is written, and back. */
  toDisk?(record: R): R;
  fromDisk?(record: R): R;
  /** Whether a record that was read has to be written again, in the current format. */
  outdated?(record: R): boolean;
  schema: ZodType<R>;
  /** What a record is of, for messages. */
  noun: string;
}

export async function openJsonRecords<I extends string, R extends { id: I }>(
  dir: string,
  {
    schema,
    noun,
    toDisk = (record) => record,
    fromDisk = (record) => record,
    outdated = () => false,
  }: JsonRecordsOptions<R>,
): Promise<JsonRecords<I, R>> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const all = new Map<I, R>();
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    // Left by a write that was cut short: the record that it was to replace is still valid.
    if (name.endsWith('.tmp')) await rm(path, { force: true });
    if (!name.endsWith('.json')) continue;
    const parsed = schema.safeParse(
      await readJson(path).catch((error: unknown) => requireSyntaxError(error)),
    );
    if (!parsed.success || `${parsed.data.id}.json` !== name) {
      throw new CayError('internal', `Cannot read the ${noun} record "${path}": it is damaged`, {
        hint: `move the file away to start without that ${noun}, whose files are then removed`,
        cause: parsed.error,
      });
    }
    all.set(parsed.data.id, fromDisk(parsed.data));
    if (outdated(parsed.data)) await writeFileAtomic(path, JSON.stringify(toDisk(parsed.data)));
  }
  return {
    dir,
    all,
    get: (id) => all.get(id),
    async save(record, { undoable = false } = {}) {
      try {
        await writeFileAtomic(join(dir, `${record.id}.json`), JSON.stringify(toDisk(record)), {
          powerLoss: undoable ? 'undo' : 'nothing',
        });
      } catch (error) {
        if (!isDiskFull(error)) throw error;
        throw new CayError('resource_exhausted', `Cannot record ${noun} "${record.id}": the disk is full`, {
          hint: 'remove sandboxes or snapshots that are not needed, or make room on the disk of the data directory',
          cause: error,
        });
      }
      all.set(record.id, record);
    },
    remember: (record) => void all.set(record.id, record),
    async delete(id) {
      await rm(join(dir, `${id}.json`), { force: true });
      all.delete(id);
    },
  };
}

/**
 * What is no JSON is as damaged as what has the wrong fields; what cannot be read at all is another matter.
 */
function requireSyntaxError(error: unknown): undefined {
  if (error instanceof SyntaxError) return undefined;
  throw error;
}
