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
    if (!name.endsWith('.json')) {
      // A temporary file of a write that was cut short: the record it was to replace stands.
      await rm(path, { force: true });
      continue;
    }
    const parsed = SandboxRecordSchema.safeParse(await readJson(path));
    if (!parsed.success || `${parsed.data.id}.json` !== name) {
      throw new CayError('internal', `Cannot read the sandbox record "${path}": it is damaged`, {
        hint: 'move the file away to start without that sandbox',
        cause: parsed.error,
      });
    }
    all.set(parsed.data.id, parsed.data);
  }
  return {
    all,
    get: (id) => all.get(id),
    async save(record) {
      await writeFileAtomic(join(dir, `${record.id}.json`), JSON.stringify(record));
      all.set(record.id, record);
    },
    async delete(id) {
      await rm(join(dir, `${id}.json`), { force: true });
      all.delete(id);
    },
  };
}
