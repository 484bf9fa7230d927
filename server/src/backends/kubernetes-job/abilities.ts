import type { Capabilities } from '@cay/sdk/protocol';
import { abilitiesOf, type Runtime } from '../kubernetes/runtimes.ts';

const HOW_FROZEN =
  'the guest stops all processes with SIGSTOP: they keep their memory, and Kubernetes goes on counting the pod as one that runs';

/** What a sandbox can do in a pod, and that its guest does what Kubernetes cannot. */
export function jobAbilitiesOf(runtime: Runtime): Pick<Capabilities, 'abilities' | 'notes'> {
  const { abilities, notes } = abilitiesOf(runtime);
  return { abilities: { ...abilities, freeze: true }, notes: { ...notes, freeze: HOW_FROZEN } };
}
