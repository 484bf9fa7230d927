import type { Random } from '../../faults/model/random.ts';
import type { Target, TargetOptions } from './target.ts';

/**
 * An endless supply of random attacks of one class. `npm test` runs each campaign for some seconds, `npm run
 * attacks` for as long as it is told. The same seed gives the same cases in the same order.
 */
export interface Campaign {
  readonly name: string;
  /** What `npm test` runs it against; each entry is a run of its own. `--target` may name any other. */
  readonly targets: readonly TargetOptions[];
  /** Flags of the server that its cases need. What they name may be started here. */
  flags?(on: TargetOptions): readonly string[] | Promise<readonly string[]>;
  /** Makes what its cases need. */
  open(target: Target, random: Random): Promise<OpenCampaign>;
}

export interface OpenCampaign extends Partial<AsyncDisposable> {
  /**
   * Runs one case and says in a few words what it was. Rejects if the attack had an effect that it must not
   * have.
   */
  next(): Promise<string>;
}
