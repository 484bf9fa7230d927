import { CayError } from '@cay/sdk/protocol';
import { withTimeout } from '../../../lib/timeout.ts';

/** How many uploads may run for one digest, and for one project. */
const MOST_OF_DIGEST = 2;
const MOST_OF_PROJECT = 8;

/** Bounds how many uploads run at once. The returned function counts one until its result is disposed of. */
export function uploadsUnderWay(): (project: string, digest: string) => Disposable {
  const underWay = new Map<string, string[]>();
  return (project, digest) => {
    const all = underWay.get(project) ?? [];
    const same = all.filter((other) => other === digest).length;
    if (same >= MOST_OF_DIGEST || all.length >= MOST_OF_PROJECT) {
      throw new CayError(
        'resource_exhausted',
        `${all.length} uploads of the project are under way, ${same} of them of these files`,
        {
          details: {
            underWay: all.length,
            limit: MOST_OF_PROJECT,
            ofTheseFiles: same,
            limitOfTheseFiles: MOST_OF_DIGEST,
          },
          hint: 'wait for one of them to end',
        },
      );
    }
    underWay.set(project, [...all, digest]);
    return {
      [Symbol.dispose]() {
        const left = underWay.get(project)!;
        left.splice(left.indexOf(digest), 1);
        if (left.length === 0) underWay.delete(project);
      },
    };
  };
}

/** Rejects `deadline_exceeded` when the sender is not done in time, however slowly it sends. */
export async function* inTime(
  data: AsyncIterable<Uint8Array>,
  deadlineMs: number,
  allowedMs: number,
): AsyncGenerator<Uint8Array, void, undefined> {
  const late = () =>
    new CayError('deadline_exceeded', `The upload took longer than ${Math.round(allowedMs / 1000)} s`);
  const iterator = data[Symbol.asyncIterator]();
  let ended = false;
  try {
    for (;;) {
      const next = await withTimeout(iterator.next(), Math.max(1, deadlineMs - performance.now()), late);
      ended = next.done === true;
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // Waiting for the source to end would take as long as the source does.
    if (!ended) void Promise.resolve(iterator.return?.()).catch(() => {});
  }
}
