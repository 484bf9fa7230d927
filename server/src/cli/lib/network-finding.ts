import { setTimeout as sleep } from 'node:timers/promises';
import type { Backend } from '../../backends/backend.ts';
import type { Finding } from '../verbs/doctor.ts';

const WITHIN_MS = 90_000;
const AGAIN_MS = 250;

/**
 * Whether the cluster keeps sandboxes off the network, where the cluster is the one to do it. It is tried in
 * the background, and waited for.
 */
export async function networkFinding(
  backend: Pick<Backend, 'capabilities'>,
  { withinMs = WITHIN_MS }: { withinMs?: number } = {},
): Promise<Finding | undefined> {
  const deadline = Date.now() + withinMs;
  for (;;) {
    const network = (await backend.capabilities()).enforcement?.network;
    if (!network) return undefined;
    if (network.state === 'unknown' && Date.now() < deadline) {
      await sleep(AGAIN_MS);
      continue;
    }
    const what = 'networkPolicy';
    if (network.state === 'enforced') return { what, state: 'works', detail: network.reason };
    const said =
      network.state === 'unknown'
        ? 'it is not known whether the cluster enforces it'
        : 'the cluster does not enforce it';
    return {
      what,
      state: 'absent',
      detail: `${said}: ${network.reason}`,
      remedy:
        'a network plugin that enforces NetworkPolicies; CAY_KUBERNETES_REQUIRE_NETWORK_POLICY=1 starts no sandbox without',
    };
  }
}
