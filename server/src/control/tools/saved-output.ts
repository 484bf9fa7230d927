import type { Guest } from '../../guest/guest.ts';
import { MOST_SAVED_BYTES, SAVED_DIRECTORY } from './limits.ts';

export interface SavedOutput {
  /** Resolves when there is room for more. */
  add(data: Uint8Array): Promise<void>;
  /** The path of the file, or undefined if it could not be written. */
  finish(): Promise<string | undefined>;
}

/**
 * Writes an output into a file of the sandbox while it comes. A file that cannot be written, on a full disk
 * or as a user that may not, never fails the call that the output is of.
 */
export function saveOutput(guest: Guest, user: string, name: string): SavedOutput {
  const path = `${SAVED_DIRECTORY}/${name}.log`;
  let waiting: { data: Uint8Array | undefined; taken(): void } | undefined;
  let wake: (() => void) | undefined;
  let ended = false;
  let failed = false;
  let left = MOST_SAVED_BYTES;

  async function* source(): AsyncGenerator<Uint8Array> {
    for (;;) {
      if (waiting) {
        const { data, taken } = waiting;
        waiting = undefined;
        if (data) yield data;
        taken();
      } else if (ended) return;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  }

  const written = guest
    .files(user)
    .write(path, source(), { mode: 0o600 })
    .then(
      () => true,
      () => {
        failed = true;
        waiting?.taken();
        return false;
      },
    );

  return {
    async add(data) {
      if (failed || left === 0) return;
      const piece = Buffer.from(data.subarray(0, left));
      left -= piece.length;
      await new Promise<void>((resolve) => {
        waiting = { data: piece, taken: resolve };
        wake?.();
      });
    },
    async finish() {
      ended = true;
      wake?.();
      return (await written) ? path : undefined;
    },
  };
}
