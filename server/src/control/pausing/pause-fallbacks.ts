import { PAUSES, type Pause } from '@cay/sdk/protocol';

/**
 * The rung itself, and what comes nearest to it where that is not possible. Processes are given up only for
 * whoever has asked for that.
 */
export function pauseFallbacks(rung: Pause): Pause[] {
  return PAUSES.slice(0, PAUSES.indexOf(rung) + 1)
    .filter((each) => each === rung || each !== 'suspended')
    .toReversed();
}
