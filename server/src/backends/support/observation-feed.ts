/** The changes that a backend reports to its watchers: each once, whether a verb or an event noticed it. */
import type { SandboxId } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';
import type { CallScope, Observation } from '../backend.ts';

export interface ObservationFeed {
  /**
   * Runs a verb and reports the observation that it resolves with. Observations of the same sandbox meanwhile
   * are not reported.
   */
  changing(id: SandboxId, verb: () => Promise<Observation>): Promise<Observation>;
  /** Reports a change that no verb caused, unless a verb is changing that sandbox. */
  see(observation: Observation): void;
  /** Notes the initial state without reporting it. */
  learn(observation: Observation): void;
  /** What was reported or noted last. */
  known(): Observation[];
  subscribe(options?: CallScope): AsyncIterableIterator<Observation>;
  close(): void;
}

export function observationFeed(): ObservationFeed {
  const changes = new Broadcast<Observation>();
  const reported = new Map<SandboxId, Observation>();
  const busy = new Set<SandboxId>();

  function report(observation: Observation): Observation {
    const before = reported.get(observation.id);
    if (observation.phase === 'absent') reported.delete(observation.id);
    else reported.set(observation.id, observation);
    const same = before
      ? before.phase === observation.phase && before.incarnation === observation.incarnation
      : observation.phase === 'absent';
    if (!same) changes.send(observation);
    return observation;
  }

  return {
    async changing(id, verb) {
      busy.add(id);
      try {
        return report(await verb());
      } finally {
        busy.delete(id);
      }
    },
    see(observation) {
      if (!busy.has(observation.id)) report(observation);
    },
    learn: (observation) => void reported.set(observation.id, observation),
    known: () => [...reported.values()],
    subscribe: (options = {}) => changes.subscribe({ signal: options.signal }),
    close: () => changes.close(),
  };
}
