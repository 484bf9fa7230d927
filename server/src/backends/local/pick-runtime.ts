import { chooseRuntime } from '../../host/runtimes/choose.ts';
import type { Runtime } from '../../host/runtimes/runtime.ts';
import { allowsRuntime, requireRuntime } from '../../policy/allow-runtime.ts';
import type { Engine } from './engine.ts';

/**
 * The runtime of that name, or the configured default, or the strongest that works here: in each case one
 * that the operator allows. Rejects `permission_denied`, and what `chooseRuntime` does.
 */
export async function pickRuntime(
  { resources, policy, runtime }: Pick<Engine, 'resources' | 'policy' | 'runtime'>,
  name = runtime,
): Promise<Runtime> {
  const all = [...resources.runtimes.values()];
  if (name !== undefined) {
    requireRuntime(
      policy,
      name,
      all.map((each) => each.name),
    );
  }
  return chooseRuntime(
    all.filter((each) => allowsRuntime(policy, each.name)),
    name,
  );
}
