import type { SandboxSpec } from '@cay/sdk/protocol';
import type { Guest } from '../../guest/guest.ts';
import type { Instance } from '../../host/instances/instance.ts';
import { guestWithEnv, imageEnvOf } from '../support/image-env.ts';

/** The guest of an instance, with the environment of its image below that of each command. */
export function guestOf({ facts: { image }, link: { guest } }: Instance): Guest {
  return image && image.env.length > 0 ? guestWithEnv(guest, imageEnvOf(image.env)) : guest;
}

/** The same of an instance that has just started; makes the working directory that an image may lack. */
export async function fitGuest(instance: Instance, spec: SandboxSpec): Promise<Guest> {
  const guest = guestOf(instance);
  if (!instance.facts.image || spec.readOnlyRoot) return guest;
  const root = guest.files('root');
  if (await root.mkdir(spec.workdir)) await root.chown(spec.workdir, spec.user);
  return guest;
}
