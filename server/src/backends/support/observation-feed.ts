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
  const told = new Map<SandboxId, Observation>();
  const busy = new Set<SandboxId>();

  function tell(observation: Observation): Observation {
    const before = told.get(observation.id);
    if (observation.phase === 'absent') told.delete(observation.id);
    else told.set(observation.id, observation);
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
        return tell(await verb());
      } finally {
        busy.delete(id);
      }
    },
    see(observation) {
      if (!busy.has(observation.id)) tell(observation);
    },
    learn: (observation) => void told.set(observation.id, observation),
    known: () => [...told.values()],
    subscribe: (options = {}) => changes.subscribe({ signal: options.signal }),
    close: () => changes.close(),
  };
}
