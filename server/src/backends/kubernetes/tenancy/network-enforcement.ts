/**
 * Whether the cluster enforces its NetworkPolicies. It is tried in the background once the cluster can be
 * used.
 */
import { CayError, type NetworkEnforcement } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { Runtime } from '../runtimes.ts';

/** Retry interval after a probe without a result. */
const AGAIN_MS = 60_000;

export interface NetworkEnforcing {
  /** Tries it once, and remembers what was seen. Does nothing if it has begun. */
  begin(runtime: Runtime): void;
  readonly current: NetworkEnforcement;
  /**
   * Rejects `failed_precondition` unless it is enforced, where the settings demand that. Waits for an attempt
   * that is under way.
   */
  require(): Promise<void>;
  stop(): Promise<void>;
}

export interface NetworkEnforcingOptions {
  /** Rejects if nothing could be seen. */
  probe(runtime: Runtime, signal: AbortSignal): Promise<NetworkEnforcement>;
  /** No sandbox is started while it is not enforced. */
  required: boolean;
  /** Called once with what is not enforced. */
  onError(error: unknown): void;
  againMs?: number;
}

export function networkEnforcing({
  probe,
  required,
  onError,
  againMs = AGAIN_MS,
}: NetworkEnforcingOptions): NetworkEnforcing {
  const closing = new AbortController();
  let current: NetworkEnforcement = { state: 'unknown', reason: 'it has not been tried yet' };
  let trying: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;

  async function attempt(runtime: Runtime): Promise<void> {
    try {
      current = await probe(runtime, closing.signal);
    } catch (error) {
      current = { state: 'unknown', reason: `it could not be tried: ${systemReason(error)}` };
    }
    if (closing.signal.aborted) return;
    if (current.state === 'not_enforced') onError(refusal(current));
    if (current.state === 'unknown')
      timer = setTimeout(() => void (trying = attempt(runtime)), againMs).unref();
  }

  return {
    begin(runtime) {
      if (trying || closing.signal.aborted) return;
      current = { state: 'unknown', reason: 'it is being tried' };
      trying = attempt(runtime);
    },
    get current() {
      return current;
    },
    async require() {
      if (!required) return;
      await trying;
      if (current.state !== 'enforced') throw refusal(current);
    },
    async stop() {
      closing.abort();
      clearTimeout(timer);
      await trying;
    },
  };
}

function refusal({ state, reason }: NetworkEnforcement): CayError {
  const said =
    state === 'not_enforced'
      ? 'The cluster does not enforce NetworkPolicies'
      : 'It is not known whether the cluster enforces NetworkPolicies';
  return new CayError('failed_precondition', `${said}, so that sandboxes have a network: ${reason}`, {
    details: { reason: 'network_policy_not_enforced', state },
    hint: 'use a network plugin that enforces them, such as Calico or Cilium',
  });
}
