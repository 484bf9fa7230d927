import { kubernetesJobBackend } from '../../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { backendOnPods } from './backend-on-pods.ts';

await backendOnPods('kubernetes-job', kubernetesJobBackend, 'gvisor');
