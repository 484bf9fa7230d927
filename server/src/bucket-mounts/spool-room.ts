/** Room for contents that are being written: of a mount, of its project, and of the disk. */
import { constants } from 'node:os';
import { freeBytes } from '../lib/free-bytes.ts';
import { FuseError } from './fuse/fuse-error.ts';

/** What all mounts of a project have taken. */
export interface ProjectSpace {
  /** Throws `resource_exhausted` when it would be too much. */
  take(bytes: number): void;
  /** Counts what cannot be refused; a negative number is given back. */
  add(bytes: number): void;
  /** How many contents there are. Each is an open file of the server. */
  contents: number;
}

export interface SpoolRoomOptions {
  /** Where the contents are. */
  dir: string;
  /** What all contents of a mount take. */
  mostBytes: number;
  /** What stays free on the disk. */
  leastFree?: number;
  mostContents?: number;
  project?: ProjectSpace | undefined;
}

const MiB = 1024 * 1024;
const LEAST_FREE = 512 * MiB;
const CHECK_EVERY = 32 * MiB;
/** Contents of a mount, and of all mounts of a project: the server has each of them open. */
const MOST_CONTENTS = 8_192;
const MOST_OF_PROJECT = 16_384;

export class SpoolRoom {
  readonly #options: SpoolRoomOptions;
  #bytes = 0;
  #contents = 0;
  #unchecked = CHECK_EVERY;
  #isFull = false;

  constructor(options: SpoolRoomOptions) {
    this.#options = options;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** One more content. Throws `ENFILE` if there are too many: a bucket that takes none makes them stay. */
  enter(): void {
    const { mostContents = MOST_CONTENTS, project } = this.#options;
    if (this.#contents >= mostContents || (project?.contents ?? 0) >= MOST_OF_PROJECT)
      throw new FuseError(constants.errno.ENFILE);
    this.countContents(1);
  }

  /** What is there already, and cannot be refused; a negative number has gone. */
  countContents(more: number): void {
    this.#contents += more;
    if (this.#options.project) this.#options.project.contents += more;
  }

  get contents(): number {
    return this.#contents;
  }

  /** Takes so much, at once, so that two who ask side by side do not get the same. Rejects `ENOSPC`. */
  async take(bytes: number): Promise<void> {
    const { mostBytes, project, dir, leastFree = LEAST_FREE } = this.#options;
    if (this.#bytes + bytes > mostBytes) throw new FuseError(constants.errno.ENOSPC);
    project?.take(bytes);
    this.#bytes += bytes;
    this.#unchecked += bytes;
    if (this.#unchecked >= CHECK_EVERY) {
      this.#isFull = (await freeBytes(dir)) < leastFree + bytes;
      this.#unchecked = this.#isFull ? CHECK_EVERY : 0;
    }
    if (!this.#isFull) return;
    this.give(bytes);
    throw new FuseError(constants.errno.ENOSPC);
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
    this.#options.project?.add(-bytes);
  }

  /** What is there already, and cannot be refused. */
  count(bytes: number): void {
    this.#bytes += bytes;
    this.#options.project?.add(bytes);
  }
}
