/**
 * Tries whether the cluster keeps pods off the network, as the NetworkPolicy of their namespace asks. The API
 * server takes such an object whether or not anything enforces it: that is for the network plugin, and only a
 * pod can tell.
 *
 * Two pods of the guest's image are made beside where sandboxes are. One tries to reach the other, the API
 * server, the metadata service of clouds and the server itself. A connection that is made is the proof that
 * nothing is enforced. That none is made says something only if the other pod listens, which it is asked
 * itself. The pods are removed afterwards, by us or when their time is over.
 */
import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import { isIP, isIPv6 } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { randomBytes } from 'node:crypto';
import { CayError, type NetworkEnforcement } from '@cay/sdk/protocol';
import { execStream } from '../client/exec-stream.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { LABELS } from '../client/names.ts';
import type { List, Pod } from '../client/objects.ts';
import { isRunning, whyNotStarting } from '../workloads/pod-state.ts';
import { CONTAINER, GUEST_IN_IMAGE } from '../workloads/pod-spec.ts';
import { PROBE_PORT, probePod } from '../probe-pod.ts';
import type { Runtime } from '../runtimes.ts';
import type { KubernetesSettings } from '../settings.ts';

/** An object that keeps one pod, in the words of a backend. */
export interface ProbeObject {
  path: string;
  body: object;
}

export interface ProbeOptions {
  client: KubernetesClient;
  namespace: string;
  installation: string;
  settings: KubernetesSettings & { pullPolicy: string };
  /** What this kind of backend makes pods by. It has to end by itself after `seconds`. */
  render(probe: { name: string; labels: Record<string, string>; pod: object; seconds: number }): ProbeObject;
  signal?: AbortSignal;
  /** How long after something was reached it is tried again. */
  settleMs?: number;
}

/** How often it is tried before what is reached counts. */
const ATTEMPTS = 3;
const SETTLE_MS = 2_000;
/** How long an attempt to connect may take: far longer than a packet, within a cluster. */
const REACH_MS = 3_000;
/** Most of it is for the image. */
const START_MS = 120_000;
const EXEC_MS = 30_000;
const LOOK_AGAIN_MS = 500;
/** When the cluster removes what the server could not. */
const LIFE_SECONDS = 180;
const MAX_SAID_BYTES = 64 * 1024;
const METADATA = '169.254.169.254:80';
const DEFAULT_SERVER_PORT = 7070;

/** Resolves with what was seen; rejects if nothing could be. */
export async function probeNetwork(options: ProbeOptions, runtime: Runtime): Promise<NetworkEnforcement> {
  const { client, namespace, installation, settings, render } = options;
  const name = `cay-probe-${randomBytes(5).toString('hex')}`;
  const labels = { [LABELS.probe]: name, [LABELS.probeOf]: installation };
  const pod = probePod(settings, runtime);
  const made: string[] = [];
  try {
    for (const side of ['a', 'b']) {
      const { path, body } = render({ name: `${name}-${side}`, labels, pod, seconds: LIFE_SECONDS });
      made.push(`${path}/${name}-${side}`);
      await client.json('POST', path, { action: 'try the network of pods', body, signal: options.signal });
    }
    const [one, other] = await runningPods(options, name);
    const peer = `${addressed(other.status!.podIP!)}:${PROBE_PORT}`;
    const targets = [{ what: 'another pod', address: peer }, ...(await targetsOf(options))];
    const where = `in namespace "${namespace}"`;
    const addresses = targets.map(({ address }) => address);
    let reached = await reach(options, one, addresses);
    // A plugin may take a moment until its rules hold for a new pod.
    for (let attempt = 1; attempt < ATTEMPTS && reached.size > 0; attempt++) {
      await sleep(options.settleMs ?? SETTLE_MS, undefined, { signal: options.signal });
      reached = await reach(options, one, addresses);
    }
    if (reached.size > 0) {
      const open = targets.filter(({ address }) => reached.has(address));
      const named = open.map(({ what, address }) => `${what} (${address})`).join(', ');
      return { state: 'not_enforced', reason: `a pod ${where} has reached ${named}` };
    }
    const own = await reach(options, other, [peer]);
    if (!own.has(peer))
      return { state: 'unknown', reason: `the pod ${where} that was to be reached does not reach itself` };
    const tried = targets.map(({ what }) => what);
    return { state: 'enforced', reason: `a pod ${where} could not reach ${[...new Set(tried)].join(', ')}` };
  } finally {
    await Promise.all(made.map((path) => remove(client, path)));
  }
}

/** It may exist although the answer was lost. */
async function remove(client: KubernetesClient, path: string): Promise<void> {
  const call = {
    action: 'remove what the network was tried with',
    allow: [404, 409],
    body: { propagationPolicy: 'Background' },
  };
  // The cluster ends what is left.
  await client.json('DELETE', path, { ...call, signal: AbortSignal.timeout(5_000) }).catch(() => {});
}

async function runningPods({ client, namespace, signal }: ProbeOptions, name: string): Promise<[Pod, Pod]> {
  const action = 'try the network of pods';
  const query = { labelSelector: `${LABELS.probe}=${name}` };
  const deadline = Date.now() + START_MS;
  for (;;) {
    const { items } = (await client.json('GET', `/api/v1/namespaces/${namespace}/pods`, {
      action,
      query,
      signal,
    })) as List<Pod>;
    const [one, other] = items.filter(
      (pod) => isRunning(pod) && pod.status?.podIP !== undefined && isIP(pod.status.podIP) > 0,
    );
    if (one && other) return [one, other];
    for (const pod of items) {
      const why = whyNotStarting(pod, action, { hasRun: false });
      if (why) throw why;
    }
    if (Date.now() > deadline)
      throw new CayError(
        'deadline_exceeded',
        `Cannot ${action}: two pods did not run within ${START_MS / 1000} s`,
      );
    await sleep(LOOK_AGAIN_MS, undefined, { signal });
  }
}

async function reach(
  { client, namespace, signal }: ProbeOptions,
  pod: Pod,
  addresses: string[],
): Promise<Set<string>> {
  const timeout = AbortSignal.timeout(EXEC_MS);
  const within = signal ? AbortSignal.any([signal, timeout]) : timeout;
  const stream = await execStream(client, {
    namespace,
    pod: pod.metadata.name,
    container: CONTAINER,
    argv: [GUEST_IN_IMAGE, 'reach', String(REACH_MS), ...addresses],
    action: 'try the network of pods',
    signal: within,
  });
  const end = () =>
    stream.destroy(
      new CayError('deadline_exceeded', `Cannot try the network of pods: no answer within ${EXEC_MS} ms`),
    );
  within.addEventListener('abort', end, { once: true });
  try {
    let said = '';
    for await (const part of stream) if ((said += String(part)).length > MAX_SAID_BYTES) break;
    const answers = said.split('\n').map((line) => line.split(' '));
    if (answers.filter(([address]) => addresses.includes(address ?? '')).length < addresses.length) {
      throw new CayError(
        'unavailable',
        `Cannot try the network of pods: the guest said ${JSON.stringify(said.slice(0, 200))}`,
      );
    }
    return new Set(answers.filter(([, result]) => result === 'reached').map(([address]) => address!));
  } finally {
    within.removeEventListener('abort', end);
    stream.destroy();
  }
}

/** Addresses that no sandbox needs, as far as they are known here. */
async function targetsOf({ client, settings }: ProbeOptions): Promise<{ what: string; address: string }[]> {
  const { hostname, port, protocol } = new URL(client.where);
  const bare = hostname.replace(/^\[|\]$/g, '');
  const api = isIP(bare)
    ? bare
    : await lookup(bare).then(
        ({ address }) => address,
        () => undefined,
      );
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const own = addresses
    .filter(({ internal, address }) => !internal && !address.startsWith('fe80:'))
    .slice(0, 8);
  return [
    { what: 'the metadata service', address: METADATA },
    ...(api === undefined || isLoopback(api)
      ? []
      : [
          {
            what: 'the API server',
            address: `${addressed(api)}:${port || (protocol === 'http:' ? 80 : 443)}`,
          },
        ]),
    ...own.map(({ address }) => ({
      what: 'the server',
      address: `${addressed(address)}:${settings.serverPort ?? DEFAULT_SERVER_PORT}`,
    })),
  ];
}

const isLoopback = (address: string) => address === '::1' || address.startsWith('127.');
const addressed = (ip: string) => (isIPv6(ip) ? `[${ip}]` : ip);
