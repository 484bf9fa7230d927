/** The bytes that the server holds for one carried connection. */
import type { CarriedStream } from '../egress.ts';
import type { Denial } from './denial.ts';
import type { ProjectConnections, Weighed } from './project-connections.ts';

/** Something that keeps bytes: a stream, or a body that is collected. */
export interface Buffers {
  readonly readableLength?: number;
  readonly writableLength?: number;
}

/** What a connection takes beside the bytes that it carries. */
const CONNECTION_BYTES = 8 * 1024;
/** What has arrived since a connection was weighed, when it is weighed again. */
const WEIGH_AFTER_BYTES = 128 * 1024;

export class Holding implements Weighed {
  readonly cut: (denial: Denial) => void;
  readonly #project: ProjectConnections;
  readonly #stream: CarriedStream;
  readonly #buffers = new Set<Buffers>();
  #arrived = 0;

  /** `cut` ends the connection. */
  constructor(project: ProjectConnections, stream: CarriedStream, cut: (denial: Denial) => void) {
    this.#project = project;
    this.#stream = stream;
    this.cut = cut;
  }

  /** Counts the connection for its project. Throws a `Denial`. */
  open(): void {
    this.#project.open(this);
    this.#stream.onArrived = (bytes) => this.arrived(bytes);
    this.#stream.mayWiden = () => this.#project.mayWiden(this);
  }

  close(): void {
    this.#stream.onArrived = this.#stream.mayWiden = undefined;
    this.#project.close(this);
  }

  /** Bytes have come from either side. Beyond the limit of the project the connection is cut. */
  arrived(bytes: number): void {
    this.#arrived += bytes;
    if (this.#arrived >= WEIGH_AFTER_BYTES) {
      this.#arrived = 0;
      this.#project.weigh(this);
    }
    try {
      this.#project.add(this, bytes);
    } catch (error) {
      this.cut(error as Denial);
    }
  }

  /** Counts what these keep, until the result is called. */
  add(buffers: Buffers): () => void {
    this.#buffers.add(buffers);
    return () => this.#buffers.delete(buffers);
  }

  weigh(): number {
    let bytes = CONNECTION_BYTES + this.#stream.heldBytes;
    for (const { readableLength = 0, writableLength = 0 } of this.#buffers)
      bytes += readableLength + writableLength;
    return bytes;
  }
}
