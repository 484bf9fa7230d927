import { once } from 'node:events';
import type { ServerResponse } from 'node:http';

/** Resolves when the reader has taken what was written, or is gone. */
export async function drained(response: ServerResponse): Promise<void> {
  if (response.destroyed) return;
  const over = new AbortController();
  try {
    await Promise.race([once(response, 'drain', over), once(response, 'close', over)]);
  } finally {
    over.abort();
  }
}
