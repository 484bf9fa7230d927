import { availableParallelism } from 'node:os';
import { CayError } from '@cay/sdk/protocol';
import { parseHostPath } from '../policy/allow-host-path.ts';
import { allowsRuntime, UNISOLATED } from '../policy/allow-runtime.ts';
import { openPolicy, type Policy } from '../policy/policy.ts';
import type { SettingName, Settings } from '../settings.ts';
import type { Resolved } from './resolve-settings.ts';

type PolicySettings = Pick<
  Settings,
  | 'backend'
  | 'dockerHost'
  | 'runtime'
  | 'allowRuntime'
  | 'allowImage'
  | 'allowHostPath'
  | 'allowProcess'
  | 'publishAddress'
  | 'publishPorts'
  | 'defaultLimit'
  | 'maxLimit'
>;

/** The operator's policy. Throws `invalid_argument` for settings that contradict each other. */
export function policyOf({
  settings,
  nameOf,
}: {
  settings: PolicySettings;
  nameOf: Resolved['nameOf'];
}): Policy {
  const {
    runtime,
    allowRuntime,
    allowImage,
    allowHostPath,
    allowProcess,
    publishAddress: addresses,
    publishPorts: ports,
    defaultLimit: defaults,
    maxLimit: maxima,
  } = settings;
  const policy = openPolicy({
    ...(allowRuntime?.length && { runtimes: allowRuntime }),
    ...(allowImage?.length && { images: allowImage }),
    ...(allowHostPath?.length && { hostPaths: allowHostPath.map(parseHostPath) }),
    allowProcess,
    publishing: { ...(addresses && { addresses }), ...(ports && { ports }) },
    defaults,
    maxima: { ...machineMaxima(settings), ...maxima },
  });
  if (runtime === UNISOLATED) {
    throw contradiction(
      'runtime',
      `${nameOf('runtime')} cannot be "${UNISOLATED}": what isolates nothing is named by each request that wants it`,
    );
  }
  if (runtime !== undefined && !allowsRuntime(policy, runtime)) {
    throw contradiction(
      'runtime',
      `${nameOf('runtime')} is "${runtime}", which ${nameOf('allowRuntime')} does not allow`,
      `allowed are ${allowRuntime?.join(', ')}`,
    );
  }
  return policy;
}

/** Nobody gets more processors than the machine has, where the machine of all sandboxes is this one. */
function machineMaxima({ backend, dockerHost }: PolicySettings): { cpus?: number } {
  const here = (name: Settings['backend'][number]) =>
    name === 'local' || (name === 'docker' && (dockerHost ?? 'unix:').startsWith('unix:'));
  return backend.every(here) ? { cpus: availableParallelism() } : {};
}

function contradiction(setting: SettingName, message: string, hint?: string): CayError {
  return new CayError('invalid_argument', message, {
    details: { setting },
    ...(hint !== undefined && { hint }),
  });
}
