import { CayError } from '@cay/sdk/protocol';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { PullOptions, PullProgress } from './image.ts';
import type { ImageRecord } from './image-index.ts';
import { ProgressMeter } from './progress.ts';
import { pullImage, type Puller } from './pull-image.ts';
import { pullTurns } from './pull-turns.ts';
import { canonicalName, taggedPart, type ImageReference } from './reference.ts';

/** Pulls that are under way. Callers that ask for the same image at once wait for the same pull. */
export interface ImagePulls {
  pull(reference: ImageReference, options: PullOptions): Promise<ImageRecord>;
  progress(reference: ImageReference): PullProgress | undefined;
  /** Gives up all pulls, and waits for their end. */
  close(): Promise<void>;
}

export interface ImagePullsOptions {
  /** Records a whole image under these names. */
  keep(record: ImageRecord, names: readonly string[]): Promise<void>;
  /** An image was pulled. */
  onPulled(): void;
}

interface Pull {
  meter: ProgressMeter;
  done: Promise<ImageRecord>;
  /** Aborted when no caller waits any more. */
  abort: AbortController;
  waiting: number;
}

const PULL_MS = 60 * 60_000;

export function imagePulls(puller: Puller, { keep, onPulled }: ImagePullsOptions): ImagePulls {
  const pulls = new Map<string, Pull>();
  const turns = pullTurns();

  function begin(reference: ImageReference, { ids, project }: PullOptions): Pull {
    const meter = new ProgressMeter();
    const abort = new AbortController();
    const signal = AbortSignal.any([abort.signal, AbortSignal.timeout(PULL_MS)]);
    const run = async () => {
      const tagged = taggedPart(reference);
      try {
        const record = await turns.run(project, (fetches) =>
          pullImage(puller, reference, { ids, project, meter, fetches, signal }, (pulled) =>
            keep(pulled, tagged ? [canonicalName(tagged)] : []),
          ),
        );
        onPulled();
        meter.enter('done');
        return record;
      } catch (error) {
        throw signal.aborted ? new CayError('cancelled', 'The pull was given up', { cause: error }) : error;
      }
    };
    const done = run();
    inBackground(done, ignoreFailure);
    return { meter, done, abort, waiting: 0 };
  }

  async function pull(reference: ImageReference, pullOptions: PullOptions): Promise<ImageRecord> {
    const { ids, project, signal, onProgress } = pullOptions;
    signal?.throwIfAborted();
    // Projects share layers and trees, and not a pull: one may fail because of its project's quota.
    const key = `${canonicalName(reference)} ${ids.hostId}:${ids.size} ${project ?? ''}`;
    let one = pulls.get(key);
    if (!one || one.abort.signal.aborted) {
      one = begin(reference, pullOptions);
      pulls.set(key, one);
      const own = one;
      inBackground(
        own.done.finally(() => pulls.get(key) === own && pulls.delete(key)),
        ignoreFailure,
      );
    }
    one.waiting++;
    const stop = onProgress && one.meter.listen(onProgress);
    const gaveUp = Promise.withResolvers<never>();
    const onAbort = () =>
      gaveUp.reject(new CayError('cancelled', 'The caller has given up', { cause: signal?.reason }));
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      return await Promise.race([one.done, gaveUp.promise]);
    } finally {
      signal?.removeEventListener('abort', onAbort);
      stop?.();
      if (--one.waiting === 0) one.abort.abort();
    }
  }

  return {
    pull,

    progress(reference) {
      const name = `${canonicalName(reference)} `;
      return [...pulls].find(([key]) => key.startsWith(name))?.[1].meter.now();
    },

    async close() {
      for (const { abort } of pulls.values()) abort.abort();
      await Promise.allSettled([...pulls.values()].map(({ done }) => done));
    },
  };
}
