import { isCayError } from '@cay/sdk/protocol';
import type { Guest } from '../../../guest/guest.ts';
import type { GuestLink } from '../../../guest/guest-link.ts';
import { withDeadline } from '../../../lib/timeout.ts';
import { imageEnvOf } from '../../support/image-env.ts';

/** A program that took the guest's place may never answer. */
const ASK_MS = 2_000;

/**
 * The guest, with the environment of its image below that of each command. The cluster does not report it;
 * the guest was started with it.
 */
export function guestWithPodEnv({ guest, ready }: Pick<GuestLink, 'guest' | 'ready'>): Guest {
  let env: Promise<Record<string, string>> | undefined;
  const known = () =>
    (env ??= read(ready).catch((error: unknown) => {
      // If the guest does not answer, this command runs without, and the next one asks again. A guest of an
      // earlier version is not asked again.
      if (!isCayError(error, 'unsupported')) env = undefined;
      return {};
    }));
  return {
    ...guest,
    exec: async (request, options) =>
      guest.exec({ ...request, env: { ...(await known()), ...request.env } }, options),
  };
}

async function read(ready: GuestLink['ready']): Promise<Record<string, string>> {
  const lines = await (await ready({ timeoutMs: ASK_MS })).environment(withDeadline({}, ASK_MS));
  // Variables that the cluster adds for its own clients do not belong to the image.
  return imageEnvOf(lines.filter((line) => !line.startsWith('KUBERNETES_')));
}
