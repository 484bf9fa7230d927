/**
 * One vocabulary of states for `ls`, `inspect` and filters: a paused sandbox is named by how it is paused.
 */
import type { Pause, Sandbox, SandboxState } from '@cay/sdk/client';
import { InvalidArgumentError } from 'commander';
import { formatAge } from './units.ts';

type Info = Sandbox['info'];

const STATES = ['creating', 'active', 'paused', 'stopped', 'failed', 'destroying'] as const;
const LEVELS = ['frozen', 'suspended', 'hibernated', 'archived'] as const;

export const STATE_NAMES = [...STATES, ...LEVELS].join(', ');

export interface StateFilter {
  state: SandboxState;
  pausedAs?: Pause;
}

export function parseState(text: string): StateFilter {
  const state = STATES.find((name) => name === text);
  if (state) return { state };
  const pausedAs = LEVELS.find((name) => name === text);
  if (pausedAs) return { state: 'paused', pausedAs };
  throw new InvalidArgumentError(`States are ${STATE_NAMES}.`);
}

export function stateOf({ state, pausedAs }: Pick<Info, 'state' | 'pausedAs'>): string {
  return pausedAs ?? state;
}

/** What happens by itself, and when; undefined if nothing does. */
export function expiryText({ expiresAtMs, onTimeout }: Info, now = Date.now()): string | undefined {
  if (expiresAtMs === null) return undefined;
  const left = expiresAtMs - now;
  return left <= 0 ? `${onTimeout} now` : `${onTimeout} in ${formatAge(left)}`;
}
