import { newId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { Mark } from './container-name.ts';
import { observationOf, type ContainerInspect } from './container-state.ts';

const id = newId('sbx');

function seen(mark: Mark | undefined, state: Partial<ContainerInspect['State']>) {
  const State = {
    Status: 'exited',
    Running: false,
    Paused: false,
    OOMKilled: false,
    ExitCode: 0,
    Error: '',
    ...state,
  };
  return observationOf(
    { id, incarnation: 3, ...(mark && { mark }) },
    { Id: 'c0ffee', State, HostConfig: { Runtime: 'runc', Memory: 0 } },
  );
}

describe('what a container says about its sandbox', () => {
  it('is ready while it runs, unless it was never seen to answer', () => {
    expect(seen(undefined, { Running: true })).toEqual({
      id,
      uid: 'c0ffee',
      phase: 'ready',
      incarnation: 3,
      runtime: 'runc',
    });
    expect(seen('stopping', { Running: true }).phase).toBe('ready');
    expect(seen('starting', { Running: true }).phase).toBe('starting');
    expect(seen('starting', { Status: 'created' }).phase).toBe('starting');
  });

  it('is ready and frozen while it is paused', () => {
    expect(seen(undefined, { Running: true, Paused: true })).toEqual({
      id,
      uid: 'c0ffee',
      phase: 'ready',
      incarnation: 3,
      runtime: 'runc',
      frozen: true,
    });
  });

  it('is stopped only if it was asked to stop, however it then ended', () => {
    expect(seen('stopping', { ExitCode: 137 })).toMatchObject({ phase: 'stopped' });
    expect(seen(undefined, { ExitCode: 0 })).toMatchObject({ phase: 'failed', reason: 'crashed' });
  });

  it('tells why it failed', () => {
    expect(seen(undefined, { ExitCode: 137, OOMKilled: true }).reason).toBe('oom_killed');
    expect(seen(undefined, { ExitCode: 1, OOMKilled: true }).reason).toBe('crashed');
    expect(seen(undefined, { ExitCode: 255 }).reason).toBe('host_restarted');
    expect(seen('starting', { ExitCode: 127, Error: 'no such file' })).toMatchObject({
      reason: 'start_failed',
      message: 'no such file',
    });
  });
});
