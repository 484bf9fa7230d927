import type { NetworkPolicy } from '@cay/sdk/protocol';
import { isSealed, type SealedBox } from '../../lib/sealed-box.ts';

/**
 * Network policies as they are recorded. One with rules is sealed for its row: a rule can set a header, and
 * callers put credentials there.
 */
export interface SealedNetworks {
  stored(row: string, policy: NetworkPolicy | null): string | null;
  parsed(row: string, text: string | null): NetworkPolicy | null;
}

export function sealedNetworks(box: SealedBox): SealedNetworks {
  const context = (row: string) => `${row}/network`;
  return {
    stored(row, policy) {
      const isNamed = policy === null || typeof policy === 'string';
      return isNamed ? policy : box.seal(JSON.stringify(policy), context(row));
    },
    parsed(row, text) {
      if (text === null) return null;
      // A policy that is not sealed is a name.
      if (!isSealed(text)) return text as NetworkPolicy;
      return JSON.parse(box.open(text, context(row)).toString()) as NetworkPolicy;
    },
  };
}
