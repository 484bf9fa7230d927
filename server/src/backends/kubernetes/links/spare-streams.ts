/**
 * Streams to the guests of unclaimed pods, opened before they are needed: opening an exec is the slowest part
 * of claiming a pod.
 */
import type { Duplex } from 'node:stream';
import type { Pod } from '../client/objects.ts';
import { isRunning } from '../workloads/pod-state.ts';

export interface SpareStreams {
  /** Reports an unclaimed pod, or one that is gone. */
  see(pod: Pod, gone: boolean): void;
  /**
   * The stream to a pod, for the taker alone; `undefined` if there is none. It may have ended a moment ago.
   */
  take(uid: string): Duplex | undefined;
  close(): void;
}

/** Each is a connection to the API server. */
const MAX_STREAMS = 64;
/** How long after the end of a stream the next one is opened. */
const AGAIN_MS = 5_000;

/** The byte that a bridge which was started in advance waits for. */
const WAKE = Buffer.of(0);

/** `open` makes a stream that connects to the guest when its first byte is written. */
export function spareStreams(open: (pod: Pod) => Promise<Duplex>): SpareStreams {
  /** By the uid of the pod; without a stream while it is being opened, and for a while after it has ended. */
  const spares = new Map<string, { stream?: Duplex }>();
  /** Pods that were claimed; later reports about them are ignored. */
  const taken = new Set<string>();

  function drop(uid: string): void {
    spares.get(uid)?.stream?.destroy();
    spares.delete(uid);
  }

  function keep(pod: Pod): void {
    const { uid } = pod.metadata;
    const spare: { stream?: Duplex } = {};
    spares.set(uid, spare);
    const again = () => {
      spare.stream = undefined;
      const timer = setTimeout(() => {
        if (spares.get(uid) === spare) keep(pod);
      }, AGAIN_MS);
      timer.unref();
    };
    open(pod).then((stream) => {
      stream.on('error', () => {}); // it ends with it, which is what counts
      stream.once('close', again);
      // Taken or gone meanwhile.
      if (spares.get(uid) === spare) spare.stream = stream;
      else stream.destroy();
    }, again);
  }

  return {
    see(pod, gone) {
      const { uid } = pod.metadata;
      if (gone) taken.delete(uid);
      if (gone || pod.metadata.deletionTimestamp !== undefined) drop(uid);
      else if (isRunning(pod) && !spares.has(uid) && !taken.has(uid) && spares.size < MAX_STREAMS) keep(pod);
    },

    take(uid) {
      const spare = spares.get(uid);
      if (!spare) return undefined;
      taken.add(uid);
      spares.delete(uid);
      const { stream } = spare;
      if (!stream || stream.destroyed) return undefined;
      stream.write(WAKE);
      return stream;
    },

    close() {
      for (const uid of spares.keys()) drop(uid);
    },
  };
}
