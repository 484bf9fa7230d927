/**
 * A server that does one thing to one sandbox, and is killed meanwhile, by a fault point or by its
 * parent.
 */
import { agentSandboxBackend } from '../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';

export interface Operation {
  backend?: 'agent-sandbox' | 'kubernetes-job';
  settings: Parameters<typeof agentSandboxBackend>[0];
  id: `sbx_${string}`;
  spec: Parameters<Awaited<ReturnType<typeof agentSandboxBackend>>['ensure']>[1];
  verb?: 'ensure' | 'stop' | 'remove';
}

const { backend: name, settings, id, spec, verb = 'ensure' } = JSON.parse(process.argv[2] ?? '') as Operation;
const backend = await (name === 'kubernetes-job' ? kubernetesJobBackend : agentSandboxBackend)(settings);
if (verb === 'ensure') await backend.ensure(id, spec);
else if (verb === 'stop') await backend.stop(id, { graceMs: 100 });
else await backend.remove(id);
setInterval(() => {}, 60_000);
