/** The flags of `up` that say how much projects may take, each with a variable of the environment. */
import type { Quota, SomeQuota } from '@cay/sdk/client';
import { InvalidArgumentError, Option, type Command } from 'commander';
import type { QuotaBounds } from '../../policy/quota-bounds.ts';
import { usageError } from './failure.ts';
import { parseCount, parseCpus, parseSize } from './units.ts';

export interface QuotaOptions {
  defaultQuota?: string[];
  maxQuota?: string[];
}

/** What each is called on the command line, and how its value is written. */
export const QUOTAS: Record<keyof Quota, readonly [name: string, parse: (text: string) => number]> = {
  sandboxes: ['sandboxes', parseCount],
  cpus: ['cpus', parseCpus],
  memoryBytes: ['memory', parseSize],
  diskBytes: ['disk', parseSize],
  pids: ['pids', parseCount],
  snapshots: ['snapshots', parseCount],
  snapshotBytes: ['snapshot-bytes', parseSize],
  uploadBytes: ['upload-bytes', parseSize],
  logBytes: ['log-bytes', parseSize],
  webhooks: ['webhooks', parseCount],
  templates: ['templates', parseCount],
  idempotencyKeys: ['idempotency-keys', parseCount],
  previewConnections: ['preview-connections', parseCount],
};

const KEYS = Object.keys(QUOTAS) as (keyof Quota)[];
export const QUOTA_NAMES = Object.values(QUOTAS)
  .map(([name]) => name)
  .join(', ');

export function withQuotaOptions(command: Command): Command {
  const list = (flags: string, description: string, variable: string) =>
    new Option(flags, `${description}; with commas, or repeated`).env(variable).argParser(listed);
  return command
    .addOption(
      list(
        '--default-quota <name=value>',
        `what a project has that was given no quota, of ${QUOTA_NAMES}`,
        'CAY_DEFAULT_QUOTA',
      ),
    )
    .addOption(
      list(
        '--max-quota <name=value>',
        'the most that any project has, of the same; "none" is any amount',
        'CAY_MAX_QUOTA',
      ),
    );
}

/** The same flags again. */
export function quotaFlags({ defaultQuota, maxQuota }: QuotaOptions): string[] {
  return [
    ...(defaultQuota?.length ? ['--default-quota', defaultQuota.join(',')] : []),
    ...(maxQuota?.length ? ['--max-quota', maxQuota.join(',')] : []),
  ];
}

/** Throws a usage error for what makes no sense. */
export function quotaBoundsOf({ defaultQuota, maxQuota }: QuotaOptions): QuotaBounds {
  return { defaults: quotasIn('--default-quota', defaultQuota), maxima: quotasIn('--max-quota', maxQuota) };
}

function listed(text: string, before: string[] = []): string[] {
  const texts = text.split(',').map((each) => each.trim());
  return [...before, ...texts.filter((each) => each !== '')];
}

/** `flag` is what a failure names. */
export function quotasIn(flag: string, pairs: readonly string[] = []): SomeQuota {
  const found: SomeQuota = {};
  for (const pair of pairs) {
    const [name = '', value, ...rest] = pair.split('=');
    const key = KEYS.find((each) => QUOTAS[each][0] === name);
    if (key === undefined || value === undefined || rest.length > 0) {
      throw usageError(
        `${flag} does not understand "${pair}"`,
        `give NAME=VALUE, where the name is one of ${QUOTA_NAMES}`,
      );
    }
    try {
      found[key] = value === 'none' ? null : QUOTAS[key][1](value);
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error;
      throw usageError(`${flag} cannot be "${pair}": ${error.message}`);
    }
  }
  return found;
}
