/** The archives of each project on disk, and how many bytes they have. Counted when it is opened. */
import { mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** How the name of an upload ends that is under way. */
export const UNFINISHED = '.tmp';

interface Kept {
  path: string;
  usedAtMs: number;
}

/** What an earlier server did not finish is removed. */
export function keptUploads(directory: string) {
  const kept = new Map<string, number>();
  const directoryOf = (project: string) => join(directory, project);
  const bytesOf = (project: string) => kept.get(project) ?? 0;
  const count = (project: string, bytes: number) => void kept.set(project, bytesOf(project) + bytes);

  mkdirSync(directory, { recursive: true, mode: 0o700 });
  for (const project of readdirSync(directory)) {
    for (const name of readdirSync(directoryOf(project))) {
      const path = join(directoryOf(project), name);
      if (name.endsWith(UNFINISHED)) rmSync(path, { force: true });
      else count(project, statSync(path).size);
    }
  }

  /** The least recently used first. */
  async function unused(project: string, but?: string): Promise<Kept[]> {
    const found: Kept[] = [];
    for (const name of await readdir(directoryOf(project))) {
      const path = join(directoryOf(project), name);
      const facts =
        name.endsWith(UNFINISHED) || path === but ? undefined : await stat(path).catch(() => undefined);
      if (facts) found.push({ path, usedAtMs: facts.mtimeMs });
    }
    return found.toSorted((a, b) => a.usedAtMs - b.usedAtMs);
  }

  /**
   * Changes a file and its count without awaiting in between: other uploads make room, and upload the same
   * digest, at the same time.
   */
  function drop(project: string, { path }: Kept): void {
    const facts = statSync(path, { throwIfNoEntry: false });
    if (!facts) return;
    rmSync(path);
    count(project, -facts.size);
  }

  function keep(project: string, path: string, unfinished: string, bytes: number): void {
    const before = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    renameSync(unfinished, path);
    count(project, bytes - before);
  }

  /** Makes room. The newest archive always stays. */
  async function trim(project: string, newest: string, mostBytes: number): Promise<void> {
    for (const one of await unused(project, newest)) {
      if (bytesOf(project) <= mostBytes) return;
      drop(project, one);
    }
  }

  return { directoryOf, bytesOf, unused, drop, keep, trim };
}
