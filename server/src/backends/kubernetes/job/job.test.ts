import { SandboxSpecSchema, newId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { ContainerStatus, Job, Pod } from '../client/objects.ts';
import { CONTAINER } from '../workloads/pod-spec.ts';
import { statusOf, statusPatch, type WorkloadStatus } from '../workloads/workload-status.ts';
import { WORKLOAD_OPTIONS as options } from '../testing/workload-options.ts';
import { observationOf } from '../workloads/workload-state.ts';
import { podsOf } from '../workloads/workload.ts';
import { renderJob, whyOver } from './job.ts';

const id = newId('sbx');

function job(status: WorkloadStatus, more: Partial<Job> = {}): Job {
  const made = renderJob(id, SandboxSpecSchema.parse({}), status.incarnation, options) as Job;
  const patch = statusPatch(status) as {
    metadata: { labels: object; annotations: Record<string, string | null> };
  };
  const annotations = Object.fromEntries(
    Object.entries({ ...made.metadata.annotations, ...patch.metadata.annotations }).filter(
      ([, value]) => value !== null,
    ),
  ) as Record<string, string>;
  return {
    ...made,
    ...more,
    metadata: {
      ...made.metadata,
      uid: 'job',
      labels: { ...made.metadata.labels, ...patch.metadata.labels },
      annotations,
    },
  };
}

function pod(status: Partial<ContainerStatus>, more: Pod['status'] = {}): Pod {
  const container = { name: CONTAINER, ready: true, restartCount: 0, ...status };
  const owner = { kind: 'Job', name: 'x', uid: 'job' };
  return {
    metadata: { name: 'x', uid: 'pod', ownerReferences: [owner] },
    status: { phase: 'Running', containerStatuses: [container], ...more },
  };
}

const running = { running: {} };
const ready: WorkloadStatus = { incarnation: 3, mark: 'ready', pod: 'pod', restarts: 0 };
const seen = (status: WorkloadStatus, pods: Pod[], more?: Partial<Job>) =>
  observationOf(id, { workload: job(status, more), pods }, { whyOver, keepsFiles: () => false });

describe('observationOf', () => {
  it('is ready only while the container that the guest answered from runs', () => {
    expect(seen(ready, [pod({ state: running })])).toEqual({
      id,
      phase: 'ready',
      incarnation: 3,
      uid: 'job',
      runtime: 'default',
    });
    expect(seen({ ...ready, restarts: 2 }, [pod({ state: running, restartCount: 2 })]).phase).toBe('ready');
  });

  it('is ready when the guest has answered before the node tells that its container runs', () => {
    const initialised = [
      { name: 'guest', ready: true, restartCount: 0, state: { terminated: { exitCode: 0 } } },
    ];
    const early = { phase: 'Pending', initContainerStatuses: initialised };
    const waiting = { waiting: { reason: 'PodInitializing' } };
    expect(seen(ready, [pod({ state: waiting }, early)]).phase).toBe('ready');
    expect(seen(ready, [pod({ state: waiting, restartCount: 1 }, early)])).toMatchObject({
      phase: 'failed',
      reason: 'host_restarted',
    });
    const died = { terminated: { reason: 'Error', exitCode: 137 } };
    expect(seen(ready, [pod({ state: died }, early)])).toMatchObject({ phase: 'failed', reason: 'crashed' });
    expect(seen(ready, [pod({ state: waiting, lastState: died }, early)])).toMatchObject({
      phase: 'failed',
      reason: 'crashed',
    });
  });

  it('tells a crash from want of memory, also when the kubelet has started it again already', () => {
    const died = (reason: string) => ({ terminated: { reason, exitCode: 137 } });
    expect(seen(ready, [pod({ state: died('Error') })])).toMatchObject({
      phase: 'failed',
      reason: 'crashed',
    });
    expect(
      seen(ready, [pod({ state: running, restartCount: 1, lastState: died('OOMKilled') })]),
    ).toMatchObject({ reason: 'oom_killed' });
    expect(
      seen(ready, [
        pod({
          state: { waiting: { reason: 'CrashLoopBackOff' } },
          restartCount: 1,
          lastState: died('Error'),
        }),
      ]),
    ).toMatchObject({
      reason: 'crashed',
    });
  });

  it('waits for the node to say why it ended a guest that was told to end', () => {
    for (const exitCode of [0, 143]) {
      const told = { terminated: { reason: 'Error', exitCode } };
      expect(seen(ready, [pod({ state: told })]).phase).toBe('ready');
      expect(seen(ready, [pod({ state: told }, { phase: 'Failed' })])).toMatchObject({
        phase: 'failed',
        reason: 'crashed',
      });
      expect(seen(ready, [pod({ state: running, restartCount: 1, lastState: told })]).phase).toBe('failed');
    }
  });

  it('says what the cluster did to the pod', () => {
    expect(seen(ready, [])).toMatchObject({ phase: 'failed', reason: 'removed_outside' });
    expect(
      seen(ready, [pod({}, { phase: 'Failed', reason: 'Evicted', message: 'low on disk' })]),
    ).toMatchObject({
      reason: 'removed_outside',
      message: expect.stringContaining('Evicted') as string,
    });
    const said = [
      'Usage of EmptyDir volume "files" exceeds the limit "48Mi". ',
      'Pod ephemeral local storage usage exceeds the total limit of containers 48Mi. ',
      'Container sandbox exceeded its local ephemeral storage limit "48Mi". ',
    ];
    for (const message of said) {
      const evicted = pod({}, { phase: 'Failed', reason: 'Evicted', message });
      const told = {
        phase: 'failed',
        reason: 'disk_full',
        message: expect.stringContaining(message.trim()) as string,
      };
      expect(seen(ready, [evicted])).toMatchObject(told);
      expect(seen({ ...ready, mark: 'stopped' }, [evicted])).toMatchObject(told);
    }
    const pressed =
      'The node was low on resource: ephemeral-storage. Container sandbox was using 9Gi, request is 64Mi';
    expect(seen(ready, [pod({}, { phase: 'Failed', reason: 'Evicted', message: pressed })]).reason).toBe(
      'removed_outside',
    );
    const conditions = [{ type: 'DisruptionTarget', status: 'True', reason: 'PreemptionByScheduler' }];
    expect(seen(ready, [pod({ state: running }, { conditions })]).message).toContain('PreemptionByScheduler');
  });

  it('knows nothing of a pod that replaced the one it ran in', () => {
    const other = pod({ state: running });
    other.metadata.uid = 'other';
    expect(seen(ready, [other])).toMatchObject({ phase: 'failed', reason: 'removed_outside' });
  });

  it('stays stopped while the pod that has its files is there', () => {
    const stopped: WorkloadStatus = { ...ready, mark: 'stopped' };
    expect(seen(stopped, [pod({ state: running, restartCount: 4 })]).phase).toBe('stopped');
    expect(seen(stopped, []).phase).toBe('failed');
  });

  it('is failed when the lease is over, whatever its pod says', () => {
    const status = { conditions: [{ type: 'Failed', status: 'True', reason: 'DeadlineExceeded' }] };
    expect(seen(ready, [pod({ state: running })], { status })).toMatchObject({
      phase: 'failed',
      message: expect.stringContaining('lease') as string,
    });
  });
});

describe('statusOf', () => {
  it('reads back what was noted, and takes nonsense as new', () => {
    for (const status of [
      ready,
      { ...ready, frozen: true },
      { incarnation: 1, mark: 'starting', restarts: 0, pod: undefined } as const,
    ])
      expect(statusOf(job(status))).toEqual(status);
    const broken = job(ready);
    broken.metadata.labels = { 'cay.dev/incarnation': 'x' };
    broken.metadata.annotations = { 'cay.dev/mark': 'flying', 'cay.dev/restarts': 'many' };
    expect(statusOf(broken)).toEqual({ incarnation: 1, mark: 'starting', pod: undefined, restarts: 0 });
  });
});

describe('frozen', () => {
  it('is reported for a ready sandbox alone', () => {
    const frozen = { ...ready, frozen: true };
    expect(seen(frozen, [pod({ state: running })])).toMatchObject({ phase: 'ready', frozen: true });
    expect(seen(ready, [pod({ state: running })]).frozen).toBeUndefined();
    expect(seen({ ...frozen, mark: 'stopped' }, [pod({ state: running })]).frozen).toBeUndefined();
  });
});

describe('podsOf', () => {
  it('goes by owner and never by name', () => {
    const mine = pod({});
    const unrelated: Pod = {
      metadata: { name: 'x', uid: 'y', ownerReferences: [{ kind: 'Job', name: 'x', uid: 'another' }] },
    };
    expect(podsOf(job(ready), [mine, unrelated, { metadata: { name: 'x', uid: 'z' } }])).toEqual([mine]);
  });
});
