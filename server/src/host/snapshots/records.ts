import { mkdir, readdir, readlink, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';

/** The metadata of a tree. */
export interface TreeRecord {
  kind: 'active' | 'committed';
  parent?: string;
  /** The active tree that a committed one was copied from. */
  source?: string;
  quotaBytes?: number | null;
  /** What the filesystem counted for the tree at its start; the quota is added to it. */
  baseBytes?: number;
  /** The tree holds all of its files and needs no lower layer. */
  flat?: boolean;
}

export interface Records {
  read(): Promise<Map<string, TreeRecord>>;
  write(name: string, record: TreeRecord): Promise<void>;
  remove(name: string): Promise<void>;
}

/**
 * Keeps one record for each tree next to the trees, so no database is needed to list them.
 *
 * A record is the target of a symlink. That is metadata of the filesystem: it is never half written, and
 * after a power loss it is ordered like the trees themselves. A file would need two flushes for the same
 * guarantee.
 */
export async function openRecords(dir: string): Promise<Records> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  return {
    async read() {
      const records = new Map<string, TreeRecord>();
      for (const file of await readdir(dir)) {
        // Keys have no dot: a name with one is a temporary file that a crash left.
        const record = file.includes('.')
          ? undefined
          : parse(await readlink(join(dir, file)).catch(() => ''));
        if (record) records.set(file, record);
        else await rm(join(dir, file), { force: true, recursive: true });
      }
      return records;
    },
    async write(name, record) {
      const next = join(dir, `${name}.next`);
      await rm(next, { force: true });
      await symlink(JSON.stringify(record), next);
      await rename(next, join(dir, name));
    },
    async remove(name) {
      await rm(join(dir, name), { force: true });
    },
  };
}

function parse(text: string): TreeRecord | undefined {
  try {
    const value = JSON.parse(text) as TreeRecord;
    return value.kind === 'active' || value.kind === 'committed' ? value : undefined;
  } catch {
    return undefined;
  }
}
