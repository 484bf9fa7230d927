/** The last few errors of background work, for the health report. */
import { systemReason } from '@cay/sdk/system-error';
import type { Health } from '@cay/sdk/protocol';

export interface RecentErrors {
  add(error: unknown): void;
  /** Oldest first. */
  list(): Health['recentErrors'];
}

const KEPT = 20;
const MESSAGE_LENGTH = 500;

export function openRecentErrors(now: () => number): RecentErrors {
  let errors: Health['recentErrors'] = [];
  return {
    add(error) {
      const message = systemReason(error).slice(0, MESSAGE_LENGTH);
      errors = [...errors.slice(1 - KEPT), { atMs: now(), message }];
    },
    list: () => errors,
  };
}
