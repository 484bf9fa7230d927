import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { Condition } from '../client/objects.ts';
import { statusOf } from '../workloads/workload-status.ts';
import { WORKLOAD_OPTIONS } from '../testing/workload-options.ts';
import { observationOf } from '../workloads/workload-state.ts';
import type { Sandbox } from './objects.ts';
import { renderSandbox, whyOver, whyStuck } from './sandbox.ts';
import type { PoolAndStorage } from './settings.ts';

const id = newId('sbx');
const nowMs = Date.parse('2030-01-01T00:00:00.500Z');

function sandbox(storage?: PoolAndStorage['storage']) {
  const options = { ...WORKLOAD_OPTIONS, nowMs, storage };
  const made = renderSandbox(id, SandboxSpecSchema.parse({}), 2, options) as Sandbox & {
    spec: Record<string, unknown>;
  };
  return { ...made, metadata: { ...made.metadata, uid: 'sandbox' } };
}

const withReady = (ready: Partial<Condition>) => ({
  ...sandbox(),
  status: { conditions: [{ type: 'Ready', status: 'False', ...ready }] },
});

describe('renderSandbox', () => {
  it('has the cluster end it when the lease is over', () => {
    expect(sandbox().spec).toMatchObject({
      shutdownTime: '2030-01-01T00:01:00Z',
      shutdownPolicy: 'Delete',
      operatingMode: 'Running',
    });
    expect(statusOf(sandbox())).toMatchObject({ incarnation: 2, mark: 'starting' });
  });

  it('claims a volume for the files only where there is storage', () => {
    expect(sandbox().spec).not.toHaveProperty('volumeClaimTemplates');
    expect(sandbox({ size: '5Gi', storageClass: 'fast' }).spec).toMatchObject({
      volumeClaimTemplates: [
        {
          metadata: { name: 'files' },
          spec: { storageClassName: 'fast', resources: { requests: { storage: '5Gi' } } },
        },
      ],
      podTemplate: { spec: { securityContext: { runAsNonRoot: true, fsGroup: 1000 } } },
    });
  });
});

describe('whyOver', () => {
  it('knows the end of a lease from a pod that is not ready', () => {
    expect(whyOver(withReady({ reason: 'SandboxExpired' }))?.message).toContain('lease');
    expect(whyOver(withReady({ reason: 'ClaimExpired' }))?.message).toContain('lease');
    expect(whyOver(withReady({ reason: 'DependenciesNotReady' }))).toBeUndefined();
    expect(whyOver(sandbox())).toBeUndefined();
  });
});

describe('whyStuck', () => {
  it('says at once what is known to last, and anything else when it has lasted', () => {
    const quota = withReady({
      reason: 'ReconcilerError',
      message: 'Error seen: pods "x" is forbidden: exceeded quota: none',
    });
    expect(whyStuck(quota, 'start it', false)).toMatchObject({
      code: 'resource_exhausted',
      details: { reason: 'quota_exceeded' },
    });
    const conflict = withReady({
      reason: 'ReconcilerError',
      message: 'Error seen: the object has been modified',
    });
    expect(whyStuck(conflict, 'start it', false)).toBeUndefined();
    expect(whyStuck(conflict, 'start it', true)).toMatchObject({ code: 'failed_precondition' });
    expect(whyStuck(withReady({ reason: 'DependenciesNotReady' }), 'start it', true)).toBeUndefined();
    expect(whyStuck(sandbox(), 'start it', false)).toBeUndefined();
    expect(whyStuck(sandbox(), 'start it', true)).toMatchObject({
      details: { reason: 'controller_missing' },
    });
  });
});

describe('observationOf', () => {
  it('takes a sandbox without a pod as stopped only where its files are kept apart', () => {
    const stopped = sandbox();
    stopped.metadata.annotations = { ...stopped.metadata.annotations, 'cay.dev/mark': 'stopped' };
    const seen = (keeps: boolean) =>
      observationOf(id, { workload: stopped, pods: [] }, { whyOver, keepsFiles: () => keeps }).phase;
    expect(seen(true)).toBe('stopped');
    expect(seen(false)).toBe('failed');
  });
});
