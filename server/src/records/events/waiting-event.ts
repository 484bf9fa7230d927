import { boundedText } from './bounded-data.ts';
import type { WaitingEvent } from './event-chain.ts';
import type { NewEvent } from './events.ts';

/** An event as it enters the chain. */
export function waitingEvent(
  { type, project = null, sandbox = null, key = null, outcome = 'ok', data = {} }: NewEvent,
  at: number,
): WaitingEvent {
  return { at, type, project, sandbox, key, outcome, data: boundedText(data) };
}

/** A promise that was found in the records. */
export function promisedEvent(row: { at: number; event: string; number?: number }): WaitingEvent {
  return {
    ...waitingEvent(JSON.parse(row.event) as NewEvent, row.at),
    ...(row.number !== undefined && { promise: row.number }),
  };
}
