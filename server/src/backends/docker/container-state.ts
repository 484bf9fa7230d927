import type { SandboxId } from '@cay/sdk/protocol';
import type { FailureReason, Observation } from '../backend.ts';
import type { ContainerName } from './container-name.ts';

/** What is read of `GET /containers/{id}/json`. */
export interface ContainerInspect {
  Id: string;
  Name: string;
  /** The id of its image. */
  Image: string;
  State: {
    Status: string;
    Running: boolean;
    Paused: boolean;
    OOMKilled: boolean;
    ExitCode: number;
    Error: string;
  };
  Config: { Env: string[] | null; Labels: Record<string, string> | null };
  HostConfig: { Runtime: string; Memory: number; ReadonlyRootfs?: boolean; Ulimits?: object[] | null };
}

/** Killed by SIGKILL, as the kernel does it. */
const EXIT_KILLED = 137;
/** What the engine notes for a container that it finds gone when it starts. */
const EXIT_FOUND_GONE = 255;

export function absent(id: SandboxId): Observation {
  return { id, phase: 'absent', incarnation: 0 };
}

/** What a container and its name say about the sandbox. */
export function observationOf(
  name: ContainerName,
  { Id, State, HostConfig }: Pick<ContainerInspect, 'Id' | 'State' | 'HostConfig'>,
): Observation {
  const { id, incarnation, mark } = name;
  const seen = { id, incarnation, uid: Id, ...(HostConfig.Runtime && { runtime: HostConfig.Runtime }) };
  if (State.Running)
    return {
      ...seen,
      phase: mark === 'starting' ? 'starting' : 'ready',
      ...(State.Paused && { frozen: true }),
    };
  // A clone that was not started yet is as good as stopped.
  if (mark === 'stopping') return { ...seen, phase: 'stopped' };
  if (State.Status === 'created') return { ...seen, phase: 'starting' };
  return { ...seen, phase: 'failed', ...failure(State, mark === 'starting') };
}

function failure(
  state: ContainerInspect['State'],
  starting: boolean,
): { reason: FailureReason; message: string } {
  // The engine remembers that any process ran out of memory; only a killed guest takes the sandbox with it.
  if (state.OOMKilled && state.ExitCode === EXIT_KILLED)
    return { reason: 'oom_killed', message: 'The sandbox was out of memory and its guest was killed' };
  if (starting)
    return {
      reason: 'start_failed',
      message: state.Error || `The guest ended with exit code ${state.ExitCode} before it answered`,
    };
  if (state.ExitCode === EXIT_FOUND_GONE)
    return { reason: 'host_restarted', message: 'The Docker engine found the sandbox gone when it started' };
  return { reason: 'crashed', message: `The guest ended with exit code ${state.ExitCode}` };
}
