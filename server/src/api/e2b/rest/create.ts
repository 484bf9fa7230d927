/** Translates E2B's request for a sandbox. Options that cannot be honoured are refused here. */
import {
  CayError,
  CreateSandboxSchema,
  EnvSchema,
  MountPathSchema,
  VolumeRefSchema,
  type CreateSandbox,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import { AUTO_RESUME, FIRST_TIMEOUT, MASK_HOST, PUBLIC_TRAFFIC, toLabels } from '../labels.ts';
import { refuseUnknown, toNetworkPolicy } from './network.ts';
import { snapshotIdOf } from './snapshot-names.ts';

/** E2B's default of the first route is 15 seconds. Every published client sends a timeout of its own. */
const OLD_TIMEOUT_S = 15;
const TIMEOUT_S = 300;

export const TimeoutSeconds = z
  .int()
  .min(0)
  .max(365 * 24 * 3600);

const NetworkBody = z.looseObject({
  allowOut: z.array(z.string()).nullish(),
  denyOut: z.array(z.string()).nullish(),
  allowPublicTraffic: z.boolean().nullish(),
  maskRequestHost: z
    .string()
    .max(253)
    .regex(/^[A-Za-z0-9.:${}_-]*$/, 'must be a host')
    .nullish(),
  httpsPorts: z.array(z.int()).nullish(),
  dnsServers: z.array(z.string()).nullish(),
  egressProxy: z.unknown().optional(),
  rules: z
    .record(
      z.string().max(253),
      z
        .array(
          z.looseObject({
            transform: z
              .looseObject({ headers: z.record(z.string().max(128), z.string().max(8192)).nullish() })
              .nullish(),
          }),
        )
        .max(16),
    )
    .nullish(),
});

export const CreateBody = z.looseObject({
  templateID: z.string().min(1).max(512),
  timeout: TimeoutSeconds.optional(),
  metadata: z.record(z.string(), z.string()).nullish(),
  envVars: EnvSchema.nullish(),
  autoPause: z.boolean().nullish(),
  autoPauseMemory: z.boolean().nullish(),
  autoResume: z.looseObject({ enabled: z.boolean() }).nullish(),
  allow_internet_access: z.boolean().nullish(),
  network: NetworkBody.nullish(),
  iam: z.looseObject({ tokens: z.record(z.string(), z.unknown()).nullish() }).nullish(),
  /** Its clients start the gateway themselves, by a command; the template has to bring that. */
  mcp: z.record(z.string(), z.unknown()).nullish(),
  secure: z.boolean().nullish(),
  volumeMounts: z
    .array(z.looseObject({ name: VolumeRefSchema, path: MountPathSchema }))
    .max(32)
    .nullish(),
});
export type CreateBody = z.infer<typeof CreateBody>;

export const NetworkUpdateBody = NetworkBody.extend({ allow_internet_access: z.boolean().nullish() });

/** `carries`: the server carries connections out of sandboxes. */
export function toCreateSandbox(body: CreateBody, generation: 1 | 2, carries: boolean): CreateSandbox {
  refuse(body, carries);
  const { allowPublicTraffic, maskRequestHost } = body.network ?? {};
  const pause = body.autoPause === true;
  const id = snapshotIdOf(body.templateID);
  const snapshot = id === undefined ? { template: body.templateID } : { snapshot: id };
  const lifetimeMs = timeoutMs(body.timeout ?? (generation === 1 ? OLD_TIMEOUT_S : TIMEOUT_S));
  return CreateSandboxSchema.parse({
    ...snapshot,
    env: body.envVars ?? {},
    labels: {
      ...toLabels(body.metadata ?? {}),
      ...(allowPublicTraffic !== false && { [PUBLIC_TRAFFIC]: 'true' }),
      ...(maskRequestHost && { [MASK_HOST]: maskRequestHost }),
      [AUTO_RESUME]: String(body.autoResume?.enabled === true),
      ...(body.autoResume?.enabled === true && { [FIRST_TIMEOUT]: String(lifetimeMs) }),
    },
    ...(carries && {
      network: toNetworkPolicy({ ...body.network, allow_internet_access: body.allow_internet_access }),
    }),
    ...(body.volumeMounts?.length && {
      mounts: body.volumeMounts.map(({ name, path }) => ({ type: 'volume', volume: name, path })),
    }),
    timeoutMs: lifetimeMs,
    onTimeout: !pause ? 'destroy' : body.autoPauseMemory === false ? 'stop' : 'pause',
  });
}

/** A timeout of 0 ends the sandbox after a second, which is the shortest there is. */
export function timeoutMs(seconds: number): number {
  return Math.max(1, seconds) * 1000;
}

/**
 * Refuses network options that could not be honoured. Where nothing is carried, to have no outgoing network
 * is honoured: no sandbox has one.
 */
export function refuseNetwork(network: z.infer<typeof NetworkBody>, carries: boolean): void {
  if (carries) return refuseUnknown(network);
  const wanted = [
    (network.allowOut?.length ?? 0) > 0 && 'allowOut',
    network.egressProxy != null && 'egressProxy',
    Object.keys(network.rules ?? {}).length > 0 && 'rules',
    (network.httpsPorts?.length ?? 0) > 0 && 'httpsPorts',
    (network.dnsServers?.length ?? 0) > 0 && 'dnsServers',
  ].find((name) => name !== false);
  if (wanted !== undefined)
    throw unsupported(`network.${wanted}`, 'a sandbox reaches nothing outside itself');
}

function refuse(body: CreateBody, carries: boolean): void {
  if (body.autoPauseMemory === false) requirePause(body);
  if (body.network?.allowPublicTraffic === false && body.secure === false)
    throw new CayError('invalid_argument', '"network.allowPublicTraffic: false" needs "secure: true"');
  if (body.network) refuseNetwork(body.network, carries);
  if (Object.keys(body.iam?.tokens ?? {}).length > 0) throw unsupported('iam');
}

/** A pause that keeps the files alone cannot be ended by traffic: the application would be gone. */
function requirePause({ autoPause, autoResume }: CreateBody): void {
  if (autoPause !== true)
    throw new CayError('invalid_argument', '"autoPauseMemory: false" needs "autoPause: true"');
  if (autoResume?.enabled === true)
    throw new CayError('invalid_argument', '"autoPauseMemory: false" excludes "autoResume"');
}

function unsupported(what: string, hint?: string): CayError {
  return new CayError('unsupported', `"${what}" is not supported here`, { hint });
}
