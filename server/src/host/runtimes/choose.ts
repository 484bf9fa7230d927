/** Chooses the runtime of a sandbox. */
import { CayError } from '@cay/sdk/protocol';
import type { Runtime } from './runtime.ts';

/**
 * Strongest isolation first, then the fastest. `process` is not in the list: it does not isolate and must be
 * asked for.
 */
const ORDER = ['runsc', 'crun', 'runc'];

/** The named runtime, or the first that works here. Rejects `not_found` and `unavailable`. */
export async function chooseRuntime(runtimes: readonly Runtime[], name?: string): Promise<Runtime> {
  if (name !== undefined) return byName(runtimes, name);
  const reasons: string[] = [];
  for (const candidate of ORDER) {
    const runtime = runtimes.find((each) => each.name === candidate);
    if (runtime === undefined) continue;
    const probe = await runtime.probe();
    if (probe.available) return runtime;
    reasons.push(`${runtime.name}: ${probe.reason ?? 'not available'}`);
  }
  throw new CayError(
    'unavailable',
    `No runtime works on this machine${reasons.length === 0 ? '' : `: ${reasons.join('; ')}`}`,
    {
      hint: 'install runsc (gVisor), crun or runc',
    },
  );
}

async function byName(runtimes: readonly Runtime[], name: string): Promise<Runtime> {
  const runtime = runtimes.find((each) => each.name === name);
  if (runtime === undefined) {
    const known = runtimes.map((each) => `"${each.name}"`).join(', ');
    throw new CayError('not_found', `Runtime "${name}" is unknown: there are ${known || 'none'}`);
  }
  const probe = await runtime.probe();
  if (!probe.available) {
    throw new CayError(
      'unavailable',
      `Runtime "${name}" does not work on this machine: ${probe.reason ?? 'unknown'}`,
      {
        ...(probe.hint !== undefined && { hint: probe.hint }),
      },
    );
  }
  return runtime;
}
