import { CayError } from '@cay/sdk/protocol';
import { collectBytes } from '../../../lib/bounded-bytes.ts';
import { maxBytesOf, type Bounds } from './contrast.ts';
import type { DiffAnswer, DiffJob, FileCounts } from './diff-job.ts';
import { takeDiffThread, type DiffThread } from './diff-thread.ts';
import type { FilePair, Sides } from './sides.ts';

/** Compares the files of one comparison, off the event loop. */
export interface Differ extends Disposable {
  /** The file's part of a patch. `shown` has the paths that are written into it, where they are others. */
  patch(pair: FilePair, shown?: FilePair): Promise<Uint8Array>;
  count(pair: FilePair): Promise<FileCounts>;
}

/**
 * Beyond, lines are no longer matched: what lies between the first and the last difference of a file is
 * replaced.
 */
const CAREFUL_MS = 20_000;
/** All that one comparison may take of a thread. */
const MOST_MS = 120_000;

export function openDiffer(options: Pick<Sides, 'before' | 'after'> & Bounds, signal?: AbortSignal): Differ {
  const { maxTextBytes, maxBinaryBytes } = options;
  const bounds = { maxTextBytes, maxBinaryBytes };
  let thread: DiffThread | undefined;
  let spentMs = 0;
  const close = () => thread?.release();
  signal?.addEventListener('abort', close, { once: true });

  async function contentsOf({ change, oldPath, newPath }: FilePair): Promise<DiffJob['contents']> {
    if (!change.content && oldPath && newPath) return undefined;
    const most = maxBytesOf(bounds);
    const before =
      oldPath === undefined ? Buffer.alloc(0) : await collectBytes(options.before(oldPath), most);
    const after =
      newPath === undefined ? Buffer.alloc(0) : before && (await collectBytes(options.after(newPath), most));
    return before && after ? { before, after } : 'large';
  }

  async function run(kind: DiffJob['kind'], pair: FilePair, shown = pair): Promise<DiffAnswer> {
    const contents = await contentsOf(pair);
    signal?.throwIfAborted();
    if (spentMs > MOST_MS) {
      throw new CayError('resource_exhausted', `The comparison takes longer than ${MOST_MS / 1000} s`, {
        hint: 'compare one directory after the other, with "path"',
      });
    }
    thread ??= takeDiffThread();
    const { answer, ms } = await thread.run({
      kind,
      pair: shown,
      ...(contents && { contents }),
      bounds,
      careful: spentMs < CAREFUL_MS,
    });
    spentMs += ms;
    if ('failure' in answer) throw new Error(`A file could not be compared: ${answer.failure}`);
    return answer;
  }

  return {
    async patch(pair, shown) {
      return ((await run('patch', pair, shown)) as Extract<DiffAnswer, { patch: unknown }>).patch;
    },
    async count(pair) {
      return ((await run('count', pair)) as Extract<DiffAnswer, { counts: unknown }>).counts;
    },
    [Symbol.dispose]() {
      signal?.removeEventListener('abort', close);
      close();
    },
  };
}
