import { agentSandboxBackend } from '../../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import { backendOnPods } from './backend-on-pods.ts';

await backendOnPods('agent-sandbox', agentSandboxBackend);
