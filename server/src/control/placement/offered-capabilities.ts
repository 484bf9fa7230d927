import type { Capabilities } from '@cay/sdk/protocol';
import { UNISOLATED } from '../../policy/allow-runtime.ts';

/** Capabilities without the runtime that isolates nothing: it is not offered, and admins know its name. */
export function offeredCapabilities({ runtimes, platforms, ...rest }: Capabilities): Capabilities {
  const isolating = (names: readonly string[]) => names.filter((name) => name !== UNISOLATED);
  return {
    ...rest,
    runtimes: isolating(runtimes),
    ...(platforms && {
      platforms: platforms.map(({ capabilities, ...platform }) => ({
        ...platform,
        ...(capabilities && {
          capabilities: { ...capabilities, runtimes: isolating(capabilities.runtimes) },
        }),
      })),
    }),
  };
}
