/** What is read of the objects of agent-sandbox. */
import type { Condition, KubernetesObject } from '../client/objects.ts';

export interface Sandbox extends KubernetesObject {
  spec?: { shutdownTime?: string; operatingMode?: string; volumeClaimTemplates?: object[] };
  status?: { conditions?: Condition[] };
}

export interface SandboxClaim extends KubernetesObject {
  spec?: { warmPoolRef: { name: string }; lifecycle?: { shutdownTime?: string } };
  status?: { conditions?: Condition[]; sandbox?: { name?: string } };
}

export function isClaim(object: KubernetesObject): object is SandboxClaim {
  return (object as SandboxClaim).spec?.warmPoolRef !== undefined;
}

/** The claim that a sandbox was given to. */
export function claimOf({ metadata }: KubernetesObject): { name: string; uid: string } | undefined {
  return metadata.ownerReferences?.find(({ kind }) => kind === 'SandboxClaim');
}
