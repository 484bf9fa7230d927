import type { Ability, Capabilities } from '@cay/sdk/protocol';
import { abilitiesOf, type Runtime } from '../runtimes.ts';

const HOW_FROZEN =
  'the guest stops all processes with SIGSTOP: they keep their memory, and Kubernetes goes on counting the pod as one that runs';

export interface PodAbilities {
  /** The guest does what Kubernetes cannot. */
  freezes?: boolean;
  /** The files of a sandbox outlive its pod. */
  suspends?: boolean;
  /** Notes in place of the default ones. */
  notes?: Partial<Record<Ability, string>>;
}

/** What a sandbox of a backend can do in a pod. */
export function podAbilitiesOf(
  runtime: Runtime,
  { freezes = false, suspends = false, notes: own }: PodAbilities,
): Pick<Capabilities, 'abilities' | 'notes'> {
  const { abilities, notes } = abilitiesOf(runtime, own);
  return {
    abilities: { ...abilities, freeze: freezes, suspend: suspends },
    notes: freezes ? { ...notes, freeze: HOW_FROZEN } : notes,
  };
}
