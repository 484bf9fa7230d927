import type { CallScope } from '../backend.ts';

/** A resource on the platform that belongs to this installation and that no record accounts for. */
export interface Orphan {
  /**
   * What it is, in the platform's own words: `container`, `cgroup`, `tree`, `pod`. Shown to the operator and
   * written to events; nothing is decided by it. Lower case, words joined by `_`.
   */
  kind: string;
  /** Its name on the platform. */
  name: string;
}

/**
 * Finds orphans and removes them. Called when the server starts, every minute, and by `cay doctor --sweep`.
 */
export interface Sweeping {
  /**
   * Safe at any time, also while other verbs create resources: a driver must not take a resource that is
   * being made for an orphan. Resolves with what it found; with `dryRun` nothing is removed.
   */
  sweep(options?: CallScope & { dryRun?: boolean }): Promise<Orphan[]>;
}
