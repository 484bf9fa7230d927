import { collect } from '../../guest/collect.ts';
import type { Instance } from '../../host/instances/instance.ts';

/** Runs a command once, so that what the first one has to load is loaded when it matters. */
export async function warmUp(instance: Instance): Promise<void> {
  const { guest } = instance.link;
  const handle = await guest.exec({ id: 'rehearsal', argv: ['true'], env: {}, workdir: '/', user: 'user' });
  await collect(handle, { maxBytes: 1024 });
  await guest.forget('rehearsal');
}
