import type { Guest } from '../../../guest/guest.ts';
import { collectBytes } from '../../../lib/bounded-bytes.ts';
import { imageEnvOf } from '../../support/image-env.ts';
import { USER } from '../../support/sandbox-user.ts';

const MAX_BYTES = 256 * 1024;

/**
 * The guest, with the environment of its image below that of each command. The cluster does not report it;
 * the first process has it.
 */
export function guestWithPodEnv(guest: Guest): Guest {
  let env: Promise<Record<string, string>> | undefined;
  const known = () =>
    (env ??= read(guest).catch(() => {
      // Asked again with the next command: this one does without.
      env = undefined;
      return {};
    }));
  return {
    ...guest,
    exec: async (request, options) =>
      guest.exec({ ...request, env: { ...(await known()), ...request.env } }, options),
  };
}

async function read(guest: Guest): Promise<Record<string, string>> {
  const { data } = await guest.files(USER.name).read('/proc/1/environ');
  const environ = await collectBytes(data, MAX_BYTES);
  if (!environ) return {};
  const lines = environ.toString().split('\0');
  // What the cluster puts there for its own clients is none of the image's.
  return imageEnvOf(lines.filter((line) => line.includes('=') && !line.startsWith('KUBERNETES_')));
}
