/**
 * What the local backend remembers of a sandbox: one JSON file each, replaced after every change
 * and before every deed. It says which instance and which tree are the sandbox's, so that
 * a server that starts again can tell its own from what was left over.
 */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, SandboxIdSchema, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import { readJson, writeFileAtomic } from '../../lib/atomic-file.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import type { Observation } from '../backend.ts';

const SandboxRecordSchema = z.object({
  id: SandboxIdSchema,
  spec: SandboxSpecSchema,
  phase: z.enum(['starting', 'ready', 'stopped', 'failed', 'removing']),
  incarnation: z.int().min(1),
  runtime: z.string(),
  /** Absent while no process of the sandbox is meant to exist. */
  instance: z.string().optional(),
  /** The active tree that is its disk. */
  tree: z.string(),
  reason: z.enum(['oom_killed', 'crashed', 'start_failed', 'host_restarted', 'removed_outside']).optional(),
  message: z.string().optional(),
});
export type SandboxRecord = z.infer<typeof SandboxRecordSchema>;

export interface SandboxRecords {
  readonly all: ReadonlyMap<SandboxId, SandboxRecord>;
  get(id: SandboxId): SandboxRecord | undefined;
  save(record: SandboxRecord): Promise<void>;
  delete(id: SandboxId): Promise<void>;
}

export async function openSandboxRecords(dir: string): Promise<SandboxRecords> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const all = new Map<SandboxId, SandboxRecord>();
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    // Of a write that was cut short: the record it was to replace stands.
    if (name.endsWith('.tmp')) await rm(path, { force: true });
    if (!name.endsWith('.json')) continue;
    const parsed = SandboxRecordSchema.safeParse(await readJson(path).catch((error: unknown) => requireSyntaxError(error)));
    if (!parsed.success || `${parsed.data.id}.json` !== name) {
      throw new CayError('internal', `Cannot read the sandbox record "${path}": it is damaged`, {
        hint: 'move the file away to start without that sandbox, whose files are then removed',
        cause: parsed.error,
      });
    }
    all.set(parsed.data.id, parsed.data);
  }
  return {
    all,
    get: (id) => all.get(id),
    async save(record) {
      try {
        await writeFileAtomic(join(dir, `${record.id}.json`), JSON.stringify(record));
      } catch (error) {
        if (!isDiskFull(error)) throw error;
        throw new CayError('resource_exhausted', `Cannot record sandbox "${record.id}": the disk is full`, {
          hint: 'remove sandboxes that are not needed, or make room on the disk of the data directory',
          cause: error,
        });
      }
      all.set(record.id, record);
    },
    async delete(id) {
      await rm(join(dir, `${id}.json`), { force: true });
      all.delete(id);
    },
  };
}

/** What is no JSON is as damaged as what has the wrong fields; what cannot be read at all is another matter. */
function requireSyntaxError(error: unknown): undefined {
  if (error instanceof SyntaxError) return undefined;
  throw error;
}

/** A record as those outside of this backend see it. */
export function observationOf(record: SandboxRecord): Observation {
  const { id, incarnation, runtime, reason, message } = record;
  const phase = record.phase === 'removing' ? 'stopped' : record.phase;
  return { id, phase, incarnation, ...(phase === 'ready' && { runtime }), ...(reason && { reason }), ...(message && { message }) };
}
