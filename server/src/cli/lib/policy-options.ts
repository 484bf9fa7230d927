/** The flags of `up` that say what clients may ask for, each with a variable of the environment. */
import { SomeLimitsSchema, UpdateSandboxSchema, isCayError } from '@cay/sdk/protocol';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { allowsRuntime, UNISOLATED } from '../../policy/allow-runtime.ts';
import { LIMIT_NAMES } from '../../policy/bound-limits.ts';
import { openPolicy, type Policy, type PolicySettings } from '../../policy/policy.ts';
import { usageError } from './failure.ts';
import { parseCount, parseCpus, parseDuration, parseSize } from './units.ts';

export interface PolicyOptions {
  runtime?: string;
  allowRuntime?: string[];
  allowProcess?: boolean;
  allowImage?: string[];
  defaultLimit?: string[];
  maxLimit?: string[];
}

type Limit = keyof typeof LIMIT_NAMES;

const PARSERS: Record<Limit, (text: string) => number> = {
  cpus: parseCpus,
  memoryBytes: parseSize,
  diskBytes: parseSize,
  pids: parseCount,
  openFiles: parseCount,
  timeoutMs: parseDuration,
  commands: parseCount,
};

const KEYS = Object.keys(LIMIT_NAMES) as Limit[];
const NAMES = Object.values(LIMIT_NAMES).join(', ');
const PATTERN = /^[A-Za-z0-9._/:@*-]{1,512}$/;
const RUNTIME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** A server that runs no command at all would be of no use. */
const FEWEST_COMMANDS = 1;

const listed = (text: string, before: string[] = []) => [...before, ...textsIn(text)];

export function withPolicyOptions(command: Command): Command {
  const list = (flags: string, description: string, variable: string) =>
    new Option(flags, `${description}; with commas, or repeated`).env(variable).argParser(listed);
  return command
    .addOption(
      list(
        '--allow-runtime <names>',
        'the isolations that may be asked for (default: all)',
        'CAY_ALLOW_RUNTIME',
      ),
    )
    .option(
      '--allow-process',
      `with "${UNISOLATED}" in --allow-runtime: let admins make sandboxes without isolation (CAY_ALLOW_PROCESS=1)`,
    )
    .addOption(
      list(
        '--allow-image <patterns>',
        'the images that may be asked for, such as python:* (default: all)',
        'CAY_ALLOW_IMAGE',
      ),
    )
    .addOption(
      list(
        '--default-limit <limits>',
        `what a sandbox gets that asks for nothing else, as NAME=VALUE of ${NAMES}`,
        'CAY_DEFAULT_LIMIT',
      ),
    )
    .addOption(
      list(
        '--max-limit <limits>',
        'the most that one may ask for, of the same; "none" is any amount',
        'CAY_MAX_LIMIT',
      ),
    );
}

/** The same flags again. */
export function policyFlags(options: PolicyOptions): string[] {
  const lists = { runtime: options.allowRuntime, image: options.allowImage };
  return [
    ...Object.entries(lists).flatMap(([name, texts]) =>
      texts?.length ? [`--allow-${name}`, texts.join(',')] : [],
    ),
    ...(isProcessAllowed(options) ? ['--allow-process'] : []),
    ...(options.defaultLimit?.length ? ['--default-limit', options.defaultLimit.join(',')] : []),
    ...(options.maxLimit?.length ? ['--max-limit', options.maxLimit.join(',')] : []),
  ];
}

/** Throws a usage error for settings that cannot be. */
export function policyOf(options: PolicyOptions): Policy {
  const runtimes = options.allowRuntime?.length ? options.allowRuntime : undefined;
  const images = options.allowImage?.length ? options.allowImage : undefined;
  const strange =
    runtimes?.find((name) => !RUNTIME.test(name)) ?? images?.find((pattern) => !PATTERN.test(pattern));
  if (strange !== undefined)
    throw usageError(`"${strange}" is neither a runtime nor a pattern of image names`);
  const { commands, ...defaults } = limitsIn('--default-limit', options.defaultLimit);
  if (commands !== undefined)
    throw usageError(
      '--default-limit takes no "commands": no sandbox asks for them',
      'use --max-limit commands=…',
    );
  const maxima = limitsIn('--max-limit', options.maxLimit);
  const policy = opened({ runtimes, images, allowProcess: isProcessAllowed(options), defaults, maxima });
  const { runtime } = options;
  if (runtime === UNISOLATED) {
    throw usageError(
      `--runtime cannot be "${UNISOLATED}": what isolates nothing is named by each request that wants it`,
    );
  }
  if (runtime !== undefined && !allowsRuntime(policy, runtime)) {
    throw usageError(
      `--runtime is "${runtime}", which --allow-runtime does not allow`,
      `allowed are ${runtimes?.join(', ')}`,
    );
  }
  return policy;
}

/** The policy of the environment alone, for callers without flags. */
export function policyIn(env: NodeJS.ProcessEnv): Policy {
  const list = (name: string) => listed(env[name] ?? '');
  return policyOf({
    allowRuntime: list('CAY_ALLOW_RUNTIME'),
    allowImage: list('CAY_ALLOW_IMAGE'),
    defaultLimit: list('CAY_DEFAULT_LIMIT'),
    maxLimit: list('CAY_MAX_LIMIT'),
    allowProcess: env['CAY_ALLOW_PROCESS'] === '1',
  });
}

function opened(settings: PolicySettings): Policy {
  try {
    return openPolicy(settings);
  } catch (error) {
    throw isCayError(error) ? usageError(error.message, error.hint) : error;
  }
}

function isProcessAllowed({ allowProcess }: PolicyOptions): boolean {
  return allowProcess ?? process.env['CAY_ALLOW_PROCESS'] === '1';
}

function textsIn(text: string): string[] {
  return text
    .split(',')
    .map((each) => each.trim())
    .filter((each) => each !== '');
}

function limitsIn(flag: string, pairs: readonly string[] = []): NonNullable<PolicySettings['maxima']> {
  const found: Partial<Record<Limit, number | null>> = {};
  for (const pair of pairs) {
    const [name = '', value, ...rest] = pair.split('=');
    const limit = KEYS.find((key) => LIMIT_NAMES[key] === name);
    if (limit === undefined || value === undefined || rest.length > 0) {
      throw usageError(
        `${flag} does not understand "${pair}"`,
        `give NAME=VALUE, where the name is one of ${NAMES}`,
      );
    }
    const amount = amountOf(flag, pair, limit, value);
    const problem = whyNot(limit, amount);
    if (problem !== undefined) throw usageError(`${flag} cannot be "${pair}": ${problem}`);
    found[limit] = amount;
  }
  return found as NonNullable<PolicySettings['maxima']>;
}

function amountOf(flag: string, pair: string, limit: Limit, value: string): number | null {
  if (value === 'none') return null;
  try {
    return PARSERS[limit](value);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw usageError(`${flag} cannot be "${pair}": ${error.message}`);
  }
}

/** What is wrong with an amount, as the API would say it. */
function whyNot(limit: Limit, amount: number | null): string | undefined {
  if (limit === 'commands')
    return amount === null || amount < FEWEST_COMMANDS ? 'must be a number above 0' : undefined;
  const schema = limit === 'timeoutMs' ? UpdateSandboxSchema : SomeLimitsSchema;
  return schema.safeParse({ [limit]: amount }).error?.issues[0]?.message;
}
