import { mkdir, readdir, readlink, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';

/** What is known of a tree beyond its files. */
export interface TreeRecord {
  kind: 'active' | 'committed';
  parent?: string;
  /** The active tree that a committed one was copied from. */
  source?: string;
  quotaBytes?: number | null;
  /** What the filesystem counted for the tree at its start; its quota comes on top. */
  baseBytes?: number;
  /** The tree holds all of its files and needs no layer below. */
  flat?: boolean;
}

export interface Records {
  read(): Promise<Map<string, TreeRecord>>;
  write(name: string, record: TreeRecord): Promise<void>;
  remove(name: string): Promise<void>;
}

/**
 * Keeps one record for each tree next to the trees, so that no database is needed to find out what
 * they are.
 *
 * A record is the target of a symbolic link. A link's target is metadata: it is never seen half
 * written, and after a power cut it is there in the same order as the trees themselves. A file
 * would need two flushes of the disk for the same promise.
 */
export async function openRecords(dir: string): Promise<Records> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  return {
    async read() {
      const records = new Map<string, TreeRecord>();
      for (const file of await readdir(dir)) {
        // Keys have no dot: a name with one is a replacement that a crash left behind.
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
