import { type Layer, NO_RULES, PUBLIC_RULES } from './compile-policy.ts';
import type { Layers } from './decide.ts';

/**
 * The layers that decide about datagrams, by the same rules of names and addresses. The sandbox's own layer
 * has to have a rule for UDP; one above it has to have one, too, or be `public`. Nobody is asked.
 */
export function udpLayers({ layers }: Layers): Layers {
  return {
    layers: layers.map((layer, index): Layer => ({
      ...layer,
      ...layer.udp,
      base: index > 0 && layer.udp.isPublic ? PUBLIC_RULES : NO_RULES,
      otherwise: 'deny',
    })),
  };
}
