/**
 * Reports changes that the backend did not cause, from the event stream of the engine. An event only says
 * which container to inspect: what is reported is what the inspect shows. Without a stream nothing is
 * reported; after a reconnect all containers are compared with what was known.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isId, type SandboxId } from '@cay/sdk/protocol';
import type { Observation } from '../backend.ts';
import { LABELS } from './container-config.ts';
import { absent } from './container-state.ts';
import type { DockerClient } from './docker-client.ts';

export interface EventFeedOptions {
  installation: string;
  signal: AbortSignal;
  /** What is seen now. */
  observe(id: SandboxId): Promise<Observation>;
  observeAll(): Promise<Observation[]>;
  /** What was reported before. */
  known(): Observation[];
  /** Notes the state before the first watch; it is not reported as a change. */
  learn(observation: Observation): void;
  /** Called with everything seen, changed or not. */
  report(observation: Observation): void;
}

const EVENTS = ['start', 'die', 'destroy', 'rename'];
const RETRY_MS = 500;

/** Runs until the signal aborts. */
export async function feedEvents(client: DockerClient, options: EventFeedOptions): Promise<void> {
  const { installation, signal, observe, observeAll, known, learn, report } = options;
  const filters = JSON.stringify({
    type: ['container'],
    event: EVENTS,
    label: [`${LABELS.installation}=${installation}`, LABELS.sandbox],
  });

  let first = true;

  async function compare(): Promise<void> {
    const before = known();
    const reported = new Set(before.map(({ id }) => id));
    const seen = await observeAll();
    for (const observation of seen) {
      if (first && !reported.has(observation.id)) learn(observation);
      else report(observation);
    }
    first = false;
    const present = new Set(seen.map(({ id }) => id));
    for (const { id, phase } of before) if (phase !== 'absent' && !present.has(id)) report(absent(id));
  }

  while (!signal.aborted) {
    try {
      // Events since a moment before the comparison, so that nothing falls in between.
      const since = Math.floor(Date.now() / 1000) - 1;
      await compare();
      for await (const event of client.lines('GET', '/events', {
        action: 'watch sandboxes',
        query: { since, filters },
        signal,
      })) {
        const id = (event as { Actor?: { Attributes?: Record<string, string> } }).Actor?.Attributes?.[
          LABELS.sandbox
        ];
        if (isId('sbx', id)) report(await observe(id as SandboxId));
      }
    } catch {
      // The engine is away; the comparison after its return reports what has changed.
    }
    if (!signal.aborted) await sleep(RETRY_MS);
  }
}
