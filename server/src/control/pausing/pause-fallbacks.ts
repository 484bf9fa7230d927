import { PAUSES, type Pause } from '@cay/sdk/protocol';

/**
 * The level itself, then the lighter ones from the nearest on, for where it is not possible. `suspended` ends
 * processes, so it is never a fallback for a level that keeps them.
 */
export function pauseFallbacks(level: Pause): Pause[] {
  return PAUSES.slice(0, PAUSES.indexOf(level) + 1)
    .filter((each) => each === level || each !== 'suspended')
    .toReversed();
}
