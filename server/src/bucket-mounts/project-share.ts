import { Semaphore } from '../lib/semaphore.ts';
import type { MountBounds } from './bucket-mounts.ts';
import type { ProjectSpace } from './spool-room.ts';

/** Calls of programs that are answered at once, of all mounts of a project. */
const AT_ONCE = 128;
/**
 * Names that the server keeps for all mounts of a project: nodes, listings, directories that are being read.
 */
const MOST_ENTRIES = 1_000_000;

/** What the mounts of one project use of this server together. */
export class ProjectShare implements ProjectSpace {
  readonly turns = new Semaphore(AT_ONCE);
  /** As it was when the latest of its mounts was opened. */
  bounds: MountBounds | undefined;
  /** How many instances have the mount at a path of a sandbox: at a rollback two, for a moment. */
  readonly #held = new Map<string, number>();
  bytes = 0;
  contents = 0;
  entries = 0;

  get mounts(): number {
    return this.#held.size;
  }

  /** Throws `resource_exhausted` for one that is new, if it would be too much. */
  hold(mount: string, { isNew }: { isNew: boolean }): void {
    const held = this.#held.get(mount) ?? 0;
    if (isNew && held === 0) this.bounds?.requireMount(this.mounts);
    this.#held.set(mount, held + 1);
  }

  release(mount: string): void {
    const held = this.#held.get(mount)! - 1;
    if (held > 0) this.#held.set(mount, held);
    else this.#held.delete(mount);
  }

  take(bytes: number): void {
    if (bytes > 0) this.bounds?.requireBytes(this.bytes, bytes);
    this.bytes += bytes;
  }

  add(bytes: number): void {
    this.bytes += bytes;
  }

  get isCrowded(): boolean {
    return this.entries > MOST_ENTRIES;
  }
}
