import type { CayEvent, SandboxState } from '@cay/sdk/client';
import { formatAge } from './units.ts';

const EVENTS: Partial<Record<SandboxState, string>> = {
  paused: 'sandbox.paused',
  stopped: 'sandbox.stopped',
};

const CAUSES: Readonly<Record<string, string>> = {
  backend: 'by its platform',
  host_restarted: 'by a restart of the machine',
  idle: 'by its idle policy',
  pressure: 'to make room on the machine',
  request: 'on request',
  timeout: 'by its timeout',
};

/** When and by what a sandbox was paused or stopped, from its events in their order. */
export function whyInactive(
  state: SandboxState,
  events: readonly CayEvent[],
  now: number,
): string | undefined {
  const type = EVENTS[state];
  const found = events.findLast((event) => event.type === type);
  if (type === undefined || !found) return undefined;
  const { cause } = found.data;
  const by = typeof cause === 'string' && Object.hasOwn(CAUSES, cause) ? `, ${CAUSES[cause]}` : '';
  return `${formatAge(now - found.atMs)} ago${by}`;
}
