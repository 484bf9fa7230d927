/**
 * Reading and writing the files of a cgroup.
 *
 * These calls are synchronous on purpose. The files are made by the kernel from memory: each call takes
 * microseconds, while handing it to the thread pool takes ten times as long and a group needs a dozen of
 * them.
 */
import { poll } from '../../lib/poll.ts';
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmdirSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { resourceError } from '../resource-error.ts';

export function errnoOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}

export function read(dir: string, file: string): string {
  return readFileSync(join(dir, file), 'latin1');
}

/** Undefined if the file, or the whole group, does not exist. */
export function readIfThere(dir: string, file: string): string | undefined {
  try {
    return read(dir, file);
  } catch (error) {
    // ENODEV: the group was removed between open and read.
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENODEV') return undefined;
    throw error;
  }
}

/** Never creates the file: if the kernel has not made it, the controller is missing. */
export function write(dir: string, file: string, value: string | number): void {
  const fd = openSync(join(dir, file), 'r+');
  try {
    writeSync(fd, String(value));
  } finally {
    closeSync(fd);
  }
}

/** Like `write`, for files that not every kernel has. */
export function writeIfThere(dir: string, file: string, value: string | number): void {
  try {
    write(dir, file, value);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

/** Resolves whether the group was created. */
export function makeGroup(dir: string): boolean {
  try {
    mkdirSync(dir);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false;
    if (errnoOf(error) !== 'ENOENT') throw error;
    mkdirSync(dir, { recursive: true });
    return true;
  }
}

export function subgroups(dir: string): string[] {
  try {
    return readdirSync(dir, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

/**
 * The files in a group cannot and need not be removed, only the directories. False while something is in it.
 */
export function removeGroup(dir: string): boolean {
  try {
    rmdirSync(dir);
    return true;
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT') return true;
    if (errno !== 'EBUSY' && errno !== 'ENOTEMPTY') throw error;
  }
  const below = subgroups(dir);
  return below.length > 0 && below.every((name) => removeGroup(join(dir, name))) && removeGroup(dir);
}

/** A process of an outer pid namespace is listed as 0, and signalling 0 would mean our own process group. */
export function parseProcesses(text: string): number[] {
  return text
    .split('\n')
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && pid > 1);
}

/** The number after `key` in a file of `key value` lines. */
export function valueOf(text: string, key: string): number {
  for (const line of text.split('\n')) {
    const space = line.indexOf(' ');
    if (line.slice(0, space) === key) return Number(line.slice(space + 1));
  }
  return 0;
}

/** A limit without its controller is refused, because it would not be enforced. */
export function requireController(
  name: string,
  limit: string,
  value: number | null | undefined,
  dir: string | undefined,
): dir is string {
  if (dir !== undefined) return true;
  if (value === null || value === undefined) return false;
  throw resourceError(
    'unsupported',
    { kind: 'cgroup', name },
    (cgroup) => `Cannot limit ${limit} of ${cgroup}: this machine has no such controller`,
  );
}

/** Polls until `done` is true: at once, then every millisecond, later every 10. */
export async function until(
  done: () => boolean,
  { name, what, timeoutMs }: { name: string; what: (cgroup: string) => string; timeoutMs: number },
): Promise<void> {
  const delayMs = (attempts: number) => (attempts <= 20 ? 1 : 10);
  if (await poll(() => done() || undefined, { timeoutMs, delayMs })) return;
  throw resourceError(
    'deadline_exceeded',
    { kind: 'cgroup', name },
    (cgroup) => `${what(cgroup)} took longer than ${timeoutMs} ms`,
  );
}
