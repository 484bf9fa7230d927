import type { Containers, Found } from './containers.ts';
import type { ContainerName } from './container-name.ts';
import { faultPoint } from '../../lib/fault-point.ts';

/**
 * Makes another container that of the sandbox, and removes the old one. The first rename decides: before it
 * the sandbox has the old container, after it the new one, whatever happens next.
 */
export async function takePlace(
  containers: Containers,
  old: Pick<Found, 'container' | 'name'>,
  next: Pick<Found, 'container' | 'name'>,
  name: ContainerName,
): Promise<void> {
  await containers.rename(old, { ...old.name, mark: 'old' });
  try {
    await faultPoint('docker.replace.decided');
    await containers.rename(next, name);
    containers.adopt(name.id, next.container);
    await faultPoint('docker.replace.named');
    await containers.remove(name.id, old.container);
  } catch {
    // The next look finds both, and finishes this.
    containers.forget(name.id);
  }
}
