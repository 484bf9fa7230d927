import { resourceError } from '../resource-error.ts';
import type { Runtime } from './runtime.ts';

/** A container of that name that runs is another one's. */
export function requireNotRunning(name: string, status: Awaited<ReturnType<Runtime['status']>>): void {
  if (status !== 'running') return;
  throw resourceError(
    'already_exists',
    { kind: 'container', name },
    (named) => `Cannot start ${named}: it is running`,
  );
}
