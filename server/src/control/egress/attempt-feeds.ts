import type { EgressAttempt, SandboxId } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';

/** A reader that is further behind is ended. */
const MOST_BEHIND = 1000;

export interface AttemptFeeds {
  send(attempt: EgressAttempt): void;
  /**
   * Subscribes at once. The attempts of other sandboxes, and so of other projects, are nothing to a reader.
   */
  follow(id: SandboxId, signal: AbortSignal | undefined): AsyncIterable<EgressAttempt>;
  close(): void;
}

/** Attempts of sandboxes to those who follow them. */
export function openAttemptFeeds(): AttemptFeeds {
  const feeds = new Map<SandboxId, Broadcast<EgressAttempt>>();
  return {
    send(attempt) {
      const feed = feeds.get(attempt.sandboxId);
      if (feed?.hasReaders) feed.send(attempt);
      else if (feed) feeds.delete(attempt.sandboxId);
    },
    follow(id, signal) {
      const feed = feeds.get(id) ?? new Broadcast<EgressAttempt>();
      feeds.set(id, feed);
      return feed.subscribe({ ...(signal && { signal }), limit: MOST_BEHIND });
    },
    close() {
      for (const feed of feeds.values()) feed.close();
      feeds.clear();
    },
  };
}
