import type { SnapshotRow } from './snapshot-row.ts';
import type { TableContext } from './table-context.ts';

/**
 * Files of removed snapshots that other snapshots still have. All snapshots made from one snapshot share its
 * files; the files count once, until the last of those snapshots is gone. When one snapshot is left, the
 * files are counted as its own.
 */
export interface SharedFileRecords {
  /** In a transaction, before a snapshot is removed: its children hold its files from now on. */
  bequeath(snapshot: Pick<SnapshotRow, 'id' | 'project' | 'fileBytes' | 'here'>): Promise<void>;
  /** Bytes that snapshots of a project share and that are in no snapshot's own count. */
  usage(project: string): Promise<number>;
}

/**
 * So many removed snapshots one may share files of. Those of a long line of forks would otherwise take as
 * many rows as the square of its length.
 */
const MOST_ORIGINS = 64;

export function sharedFileTable({ sql }: Pick<TableContext, 'sql'>): SharedFileRecords {
  /** Counts files with one holder as the holder's own. */
  async function settle(origin: string): Promise<void> {
    const holders = await sql.all<{ holder: string; bytes: number }>(
      'SELECT holder, bytes FROM shared_files WHERE origin = ? LIMIT 2',
      origin,
    );
    const [only] = holders;
    if (!only || holders.length > 1) return;
    await sql.run(
      'UPDATE snapshots SET file_bytes = coalesce(file_bytes, 0) + ? WHERE id = ?',
      only.bytes,
      only.holder,
    );
    await sql.run('DELETE FROM shared_files WHERE origin = ?', origin);
  }

  /** What there is no room for it counts as its own, and so do others: more than there is, and never less. */
  async function inherit(
    heir: string,
    project: string,
    all: readonly { origin: string; bytes: number }[],
  ): Promise<void> {
    const held = await sql.all<{ origin: string }>('SELECT origin FROM shared_files WHERE holder = ?', heir);
    const known = new Set(held.map(({ origin }) => origin));
    let own = 0;
    for (const { origin, bytes } of all) {
      if (known.has(origin)) continue;
      if (known.size >= MOST_ORIGINS) {
        own += bytes;
        continue;
      }
      known.add(origin);
      await sql.run(
        'INSERT INTO shared_files (origin, holder, project, bytes) VALUES (?, ?, ?, ?)',
        origin,
        heir,
        project,
        bytes,
      );
    }
    if (own > 0)
      await sql.run('UPDATE snapshots SET file_bytes = coalesce(file_bytes, 0) + ? WHERE id = ?', own, heir);
  }

  return {
    async bequeath({ id, project, fileBytes, here }) {
      const held = await sql.all<{ origin: string; bytes: number }>(
        'SELECT origin, bytes FROM shared_files WHERE holder = ?',
        id,
      );
      const heirs = await sql.all<{ id: string }>(
        `SELECT id FROM snapshots WHERE parent = ? AND state <> 'passing'`,
        id,
      );
      // An object in the archive store shares nothing.
      const all = here && fileBytes ? [...held, { origin: id, bytes: fileBytes }] : held;
      for (const heir of heirs) await inherit(heir.id, project, all);
      await sql.run('DELETE FROM shared_files WHERE holder = ?', id);
      for (const { origin } of all) await settle(origin);
    },
    usage: async (project) =>
      (await sql.get<{ bytes: number }>(
        `SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes
         FROM (SELECT DISTINCT origin, bytes FROM shared_files WHERE project = ?) AS origins`,
        project,
      ))!.bytes,
  };
}
