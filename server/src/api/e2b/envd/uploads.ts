/**
 * Files that were written through this surface a moment ago. Watches need to know whether a file existed
 * before, and cannot see that from outside.
 */
export interface Uploads {
  note(sandbox: string, path: string, what: 'made' | 'replaced'): void;
  of(sandbox: string, path: string): 'made' | 'replaced' | undefined;
}

const KEEP_MS = 10_000;
const KEEP = 10_000;

export function uploads(now: () => number = Date.now): Uploads {
  const notes = new Map<string, { what: 'made' | 'replaced'; untilMs: number }>();
  return {
    note(sandbox, path, what) {
      const key = `${sandbox}:${path}`;
      notes.delete(key);
      for (const [oldest, { untilMs }] of notes) {
        if (untilMs > now() && notes.size < KEEP) break;
        notes.delete(oldest);
      }
      notes.set(key, { what, untilMs: now() + KEEP_MS });
    },
    of: (sandbox, path) => notes.get(`${sandbox}:${path}`)?.what,
  };
}
