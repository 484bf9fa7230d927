/** What a backend tells its watchers: each change of a sandbox's phase once, whoever noticed it. */
import type { SandboxId } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';
import type { CallScope, Observation } from '../backend.ts';

export interface News {
  /**
   * Runs a verb, at whose end what it resolves with is told. What is seen of the sandbox meanwhile is no
   * news.
   */
  changing(id: SandboxId, verb: () => Promise<Observation>): Promise<Observation>;
  /** Tells what somebody else has caused, unless a verb is changing that sandbox. */
  see(observation: Observation): void;
  /** Notes what was there before anybody watched. */
  learn(observation: Observation): void;
  /** What was told or learnt last. */
  known(): Observation[];
  subscribe(options?: CallScope): AsyncIterableIterator<Observation>;
  close(): void;
}

export function news(): News {
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
