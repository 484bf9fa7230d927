/** A server that makes one sandbox, and is killed meanwhile by whoever started it. */
import { agentSandboxBackend } from '../../server/src/backends/agent-sandbox/agent-sandbox.ts';

const { settings, id, spec } = JSON.parse(process.argv[2] ?? '') as {
  settings: Parameters<typeof agentSandboxBackend>[0];
  id: `sbx_${string}`;
  spec: Parameters<Awaited<ReturnType<typeof agentSandboxBackend>>['ensure']>[1];
};
const backend = await agentSandboxBackend(settings);
await backend.ensure(id, spec);
setInterval(() => {}, 60_000);
