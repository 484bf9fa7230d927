/**
 * What kept results of tool calls take on disk, and which go when a project is at its quota. They count with
 * the command logs of the project.
 */
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Records } from '../../records/records.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';

export interface ToolCallFiles {
  /** A file of a sandbox is `bytes` larger now. */
  grew(sandbox: string, project: string, bytes: number): void;
  /** Reads what the files of a sandbox take. */
  measure(sandbox: string, project: string): Promise<void>;
  /** Gives up the oldest results of a project until it is within its quota. */
  trim(project: string): Promise<void>;
  /** Removes all files of a sandbox that is gone. */
  forget(sandbox: string): Promise<void>;
}

export interface ToolCallFilesOptions {
  directory: string;
  records: Records;
  quota: Pick<QuotaLedger, 'counts' | 'limit' | 'used'>;
  /** Puts a small file without the result in place of one with it. Resolves how much smaller it is. */
  dropResult(path: string): Promise<number>;
}

/** A file without a result is smaller. */
const SMALL = 512;

export function toolCallFiles({
  directory,
  records,
  quota,
  dropResult,
}: ToolCallFilesOptions): ToolCallFiles {
  const sizes = new Map<string, { project: string; bytes: number }>();
  const trimming = new Map<string, Promise<void>>();
  const of = (project: string) => [...sizes].filter(([, each]) => each.project === project);
  quota.counts('logBytes', 'tools', (project) => of(project).reduce((sum, [, { bytes }]) => sum + bytes, 0));

  async function filesOf(sandbox: string) {
    const folder = join(directory, sandbox);
    const names = await readdir(folder).catch(() => []);
    const files = await Promise.all(
      names.map(async (name) => {
        const path = join(folder, name);
        const { size = 0, mtimeMs = 0 } = await stat(path).catch(
          () => ({}) as { size?: number; mtimeMs?: number },
        );
        return { path, size, mtimeMs };
      }),
    );
    return files.toSorted((a, b) => a.mtimeMs - b.mtimeMs);
  }

  async function trimNow(project: string): Promise<void> {
    const limit = await quota.limit(records, project, 'logBytes');
    if (limit === null) return;
    let over = (await quota.used(records, project, 'logBytes')).used - limit;
    const largest = of(project).toSorted(([, a], [, b]) => b.bytes - a.bytes);
    for (const [sandbox] of largest) {
      if (over <= 0) return;
      for (const { path, size } of await filesOf(sandbox)) {
        if (over <= 0) break;
        if (size <= SMALL) continue;
        const freed = await dropResult(path);
        files.grew(sandbox, project, -freed);
        over -= freed;
      }
    }
  }

  const files: ToolCallFiles = {
    grew(sandbox, project, bytes) {
      const known = sizes.get(sandbox);
      sizes.set(sandbox, { project, bytes: Math.max(0, (known?.bytes ?? 0) + bytes) });
    },
    async measure(sandbox, project) {
      const bytes = (await filesOf(sandbox)).reduce((sum, { size }) => sum + size, 0);
      sizes.set(sandbox, { project, bytes });
    },
    trim(project) {
      // One at a time: two would drop twice as much.
      const next = (trimming.get(project) ?? Promise.resolve())
        .catch(() => {})
        .then(() => trimNow(project))
        .finally(() => trimming.get(project) === next && trimming.delete(project));
      trimming.set(project, next);
      return next;
    },
    async forget(sandbox) {
      sizes.delete(sandbox);
      await rm(join(directory, sandbox), { recursive: true, force: true });
    },
  };
  return files;
}
