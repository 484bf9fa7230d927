import type { Capabilities } from '@cay/sdk/protocol';
import { canRoute, type Backend } from '../../backends/backend.ts';

/**
 * Asks each platform once what it can do, as a single backend is asked once: the answer may be slow, and
 * every create needs it.
 */
export function platformCapabilities(
  backend: Backend,
  own: Capabilities,
): (platform: string | undefined) => Promise<Capabilities> {
  const known = new Map<string, Capabilities>();
  return async (platform) => {
    if (platform === undefined || !canRoute(backend)) return own;
    const capabilities = known.get(platform) ?? (await (await backend.platform(platform)).capabilities());
    known.set(platform, capabilities);
    return capabilities;
  };
}
