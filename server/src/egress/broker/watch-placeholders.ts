import type { SandboxId } from '@cay/sdk/protocol';
import type { Engine } from '../carrier/engine.ts';
import type { Brokered } from './broker.ts';

/** Looks for placeholders in bytes that are only copied. Undefined if the sandbox has none. */
export function watchPlaceholders(
  { broker, secrets }: Pick<Engine, 'broker' | 'secrets'>,
  sandbox: SandboxId,
): Pick<Brokered, 'scan'> | undefined {
  const all = secrets(sandbox);
  if (all.length === 0) return undefined;
  const nothing = { method: 'GET', authority: '', target: '/', headers: [], secure: false, puts: [] };
  return broker({ ...nothing, secrets: all });
}
