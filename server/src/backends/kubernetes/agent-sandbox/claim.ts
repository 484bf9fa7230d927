import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { workloadMetadata, type WorkloadOptions } from '../workloads/workload.ts';
import { EXTENSIONS_VERSION } from './pool-objects.ts';
import { moment } from './sandbox.ts';

/** The SandboxClaim by which a sandbox is had from the warm pool. */
export function renderClaim(
  id: SandboxId,
  spec: SandboxSpec,
  incarnation: number,
  { pool, nowMs, ...options }: WorkloadOptions & { pool: string; nowMs: number },
) {
  return {
    apiVersion: EXTENSIONS_VERSION,
    kind: 'SandboxClaim',
    metadata: workloadMetadata(id, spec, incarnation, options),
    spec: {
      warmPoolRef: { name: pool },
      lifecycle: {
        shutdownTime: moment(nowMs + options.leaseSeconds * 1000),
        shutdownPolicy: 'DeleteForeground',
      },
    },
  };
}
