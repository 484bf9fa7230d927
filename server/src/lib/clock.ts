/**
 * Three ways to tell the time, because the time of day may be set, forward and back, and a machine may be
 * suspended.
 *
 * What is promised for a time of day goes by `now`. How long ago something was that this process has seen
 * goes by `steady`. How old something recorded is goes by `ageing`: it never seems older than it is, so
 * nothing is given up early because of a clock.
 */
export interface Clock {
  /** The time of day, in milliseconds. */
  now(): number;
  /**
   * The time of day when the clock was opened and how much time has passed since: it never jumps. A suspended
   * machine does not count.
   */
  steady(): number;
  /** The earlier of both. */
  ageing(): number;
}

export function openClock({
  now = Date.now,
  monotonic = () => performance.now(),
}: { now?: () => number; monotonic?: () => number } = {}): Clock {
  const offset = now() - monotonic();
  const steady = () => monotonic() + offset;
  return { now, steady, ageing: () => Math.min(now(), steady()) };
}
