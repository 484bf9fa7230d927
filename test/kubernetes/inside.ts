/**
 * A server's backend inside the network of a cluster, for a test outside of it: does what it is sent, and
 * sends back what came of it.
 */
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import type { KubernetesSettings } from '../../server/src/backends/kubernetes/settings.ts';
import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { collect } from '../../server/src/guest/collect.ts';

export type Asked =
  | { verb: 'ensure'; id: SandboxId; spec: SandboxSpec }
  | { verb: 'run'; id: SandboxId; command: string; shell: string }
  | { verb: 'remove'; id: SandboxId }
  | { verb: 'errors' };

const errors: string[] = [];
const settings = JSON.parse(process.argv[2] ?? '') as KubernetesSettings;
const backend = await kubernetesJobBackend({
  ...settings,
  onError: (error) => errors.push((error as Error).message),
});

async function answer(asked: Asked): Promise<unknown> {
  switch (asked.verb) {
    case 'ensure':
      return backend.ensure(asked.id, asked.spec);
    case 'run': {
      const guest = await backend.connect(asked.id);
      const exec = { id: asked.command, shell: asked.shell, env: {}, workdir: '/', user: 'user' };
      const { stdout, end } = await collect(await guest.exec(exec), { maxBytes: 1_000_000 });
      return { stdout: stdout.toString(), end };
    }
    case 'remove':
      return backend.remove(asked.id);
    case 'errors':
      return errors;
  }
}

process.on('message', ({ number, asked }: { number: number; asked: Asked }) => {
  answer(asked).then(
    (value) => process.send?.({ number, value }),
    (error: unknown) => process.send?.({ number, error: String(error) }),
  );
});
process.once('disconnect', () => process.exit());
process.send?.({ number: 0 });
