/**
 * Files of snapshots that were removed, as long as others have them: all that were made of one snapshot share
 * its files. They count once, until the last of those is gone. What a single one is left with is counted as
 * its own.
 */
import type { Database } from './database.ts';
import type { SnapshotRow } from './snapshots.ts';

export interface SharedFiles {
  /** In a transaction, before a snapshot goes: what it has is now had by those that were made of it. */
  bequeath(snapshot: Pick<SnapshotRow, 'id' | 'project' | 'fileBytes' | 'here'>): void;
  /** Bytes that snapshots of a project share with each other and with none that is counted. */
  usage(project: string): number;
}

/**
 * So many removed snapshots one may share files of. Those of a long line of forks would otherwise take as many
 * rows as the square of its length.
 */
const MOST_ORIGINS = 64;

export function sharedFiles(database: Database): SharedFiles {
  /** What only one has is its own. */
  function settle(origin: string): void {
    const holders = database.all<{ holder: string; bytes: number }>(
      'SELECT holder, bytes FROM shared_files WHERE origin = ?',
      origin,
    );
    const [only] = holders;
    if (!only || holders.length > 1) return;
    database.run(
      'UPDATE snapshots SET file_bytes = ifnull(file_bytes, 0) + ? WHERE id = ?',
      only.bytes,
      only.holder,
    );
    database.run('DELETE FROM shared_files WHERE origin = ?', origin);
  }

  /** What there is no room for it counts as its own, and so do others: more than there is, and never less. */
  function inherit(heir: string, project: string, all: { origin: string; bytes: number }[]): void {
    const held = database.all<{ origin: string }>('SELECT origin FROM shared_files WHERE holder = ?', heir);
    const known = new Set(held.map(({ origin }) => origin));
    let own = 0;
    for (const { origin, bytes } of all) {
      if (known.has(origin)) continue;
      if (known.size >= MOST_ORIGINS) {
        own += bytes;
        continue;
      }
      known.add(origin);
      database.run(
        'INSERT INTO shared_files (origin, holder, project, bytes) VALUES (?, ?, ?, ?)',
        origin,
        heir,
        project,
        bytes,
      );
    }
    if (own > 0)
      database.run('UPDATE snapshots SET file_bytes = ifnull(file_bytes, 0) + ? WHERE id = ?', own, heir);
  }

  return {
    bequeath({ id, project, fileBytes, here }) {
      const held = database.all<{ origin: string; bytes: number }>(
        'SELECT origin, bytes FROM shared_files WHERE holder = ?',
        id,
      );
      const heirs = database.all<{ id: string }>(
        `SELECT id FROM snapshots WHERE parent = ? AND state <> 'passing'`,
        id,
      );
      // What is in the archive store is nobody else's.
      const all = [...held, ...(here && fileBytes ? [{ origin: id, bytes: fileBytes }] : [])];
      for (const heir of heirs) inherit(heir.id, project, all);
      database.run('DELETE FROM shared_files WHERE holder = ?', id);
      for (const { origin } of all) settle(origin);
    },
    usage: (project) =>
      database.get<{ bytes: number }>(
        'SELECT ifnull(sum(bytes), 0) AS bytes FROM (SELECT DISTINCT origin, bytes FROM shared_files WHERE project = ?)',
        project,
      )!.bytes,
  };
}
