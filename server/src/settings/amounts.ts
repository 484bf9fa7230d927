/** Limits and quotas as they are written: `memory=8g,pids=512`. */
import type { PolicyFacts, Quota, SomeQuota } from '@cay/sdk/protocol';
import { UnitError, parseCount, parseCpus, parseDuration, parseSize } from '../lib/units.ts';
import { LIMIT_NAMES } from '../policy/bound-limits.ts';

type Parse = (text: string) => number;
type Amounts<K extends string> = Partial<Record<K, number | null>>;

/** What each is called, and how its value is written. */
type Kinds<K extends string> = Record<K, readonly [name: string, parse: Parse]>;

export const LIMITS: Kinds<keyof PolicyFacts['maxima']> = {
  cpus: [LIMIT_NAMES.cpus, parseCpus],
  memoryBytes: [LIMIT_NAMES.memoryBytes, parseSize],
  diskBytes: [LIMIT_NAMES.diskBytes, parseSize],
  pids: [LIMIT_NAMES.pids, parseCount],
  openFiles: [LIMIT_NAMES.openFiles, parseCount],
  timeoutMs: [LIMIT_NAMES.timeoutMs, parseDuration],
  commands: [LIMIT_NAMES.commands, parseCount],
};

export const QUOTAS: Kinds<keyof Quota> = {
  sandboxes: ['sandboxes', parseCount],
  cpus: ['cpus', parseCpus],
  memoryBytes: ['memory', parseSize],
  diskBytes: ['disk', parseSize],
  pids: ['pids', parseCount],
  snapshots: ['snapshots', parseCount],
  snapshotBytes: ['snapshot-bytes', parseSize],
  volumes: ['volumes', parseCount],
  volumeBytes: ['volume-bytes', parseSize],
  uploadBytes: ['upload-bytes', parseSize],
  imageBytes: ['image-bytes', parseSize],
  logBytes: ['log-bytes', parseSize],
  buckets: ['buckets', parseCount],
  bucketMounts: ['bucket-mounts', parseCount],
  bucketMountBytes: ['bucket-mount-bytes', parseSize],
  webhooks: ['webhooks', parseCount],
  secrets: ['secrets', parseCount],
  secretBytes: ['secret-bytes', parseSize],
  templates: ['templates', parseCount],
  idempotencyKeys: ['idempotency-keys', parseCount],
  previewConnections: ['preview-connections', parseCount],
  publishedPorts: ['published-ports', parseCount],
  egressConnections: ['egress-connections', parseCount],
  egressBufferBytes: ['egress-buffer-bytes', parseSize],
};

export const namesIn = (kinds: Kinds<string>) =>
  Object.values(kinds)
    .map(([name]) => name)
    .join(', ');

/** `none` is null: any amount. Throws a `UnitError`. */
export function amountsIn<K extends string>(kinds: Kinds<K>, pairs: readonly string[]): Amounts<K> {
  const found: Amounts<K> = {};
  for (const pair of pairs) {
    const [name = '', value, ...rest] = pair.split('=');
    const key = (Object.keys(kinds) as K[]).find((each) => kinds[each][0] === name);
    if (key === undefined || value === undefined || rest.length > 0)
      throw new UnitError(`"${pair}" is not NAME=VALUE, where the name is one of ${namesIn(kinds)}`);
    try {
      found[key] = value === 'none' ? null : kinds[key][1](value);
    } catch (error) {
      if (!(error instanceof UnitError)) throw error;
      throw new UnitError(`"${pair}": ${error.message}`);
    }
  }
  return found;
}

export function quotasIn(pairs: readonly string[]): SomeQuota {
  return amountsIn(QUOTAS, pairs);
}
