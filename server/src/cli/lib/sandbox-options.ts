/** The flags that describe a sandbox, shared by `run` and `create`. */
import type { CreateSandboxInput, NamedPolicy, NetworkPolicy, NetworkRule } from '@cay/sdk/client';
import { Option, type Command } from 'commander';
import { parseBucket } from './bucket-option.ts';
import { usageError } from './failure.ts';
import { parseTmpfs, parseVolume } from './mount-options.ts';
import { parsePublish, type Publish } from './publish-options.ts';
import { pairs, parseCount, parseCpus, parseSize } from './units.ts';

type Buckets = ReturnType<typeof parseBucket>[];
type Mounts = NonNullable<CreateSandboxInput['mounts']>;

export interface SandboxOptions {
  template?: string;
  image?: string;
  runtime?: string;
  platform?: string;
  name?: string;
  label?: Record<string, string>;
  env?: Record<string, string>;
  workdir?: string;
  user?: string;
  cpus?: number;
  memory?: number;
  disk?: number;
  pids?: number;
  readOnly?: boolean;
  volume?: Mounts;
  bucket?: Buckets;
  tmpfs?: Mounts;
  network?: NamedPolicy;
  allow?: string[];
  deny?: string[];
  secret?: string[];
  publish?: Publish[];
  join?: string[];
}

/** As in the protocol, whose schemas this program does not load. */
export const POLICIES: NamedPolicy[] = ['none', 'packages', 'public', 'ask'];

const collected = (text: string, before: string[] | undefined) => [...(before ?? []), text];

/** Rules are added to what is named, or to `packages`. */
export function policyOf(
  network: NamedPolicy | undefined,
  allow: readonly NetworkRule[] | undefined,
  deny: readonly string[] | undefined,
): NetworkPolicy | undefined {
  if (!allow?.length && !deny?.length) return network;
  const base = network === 'ask' ? 'packages' : (network ?? 'packages');
  return {
    base,
    ...(network === 'ask' && { otherwise: 'ask' as const }),
    ...(allow?.length && { allow: [...allow] }),
    ...(deny?.length && { deny: [...deny] }),
  };
}

/** `API_TOKEN=api.example.org,uploads.example.org`: the placeholder is replaced in requests to these. */
function secretRules(text: string): NetworkRule[] {
  const [, name, targets] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (name === undefined || targets === undefined)
    throw usageError(
      `"${text}" is no secret with where it goes`,
      'give --secret NAME=HOST, such as API_TOKEN=api.example.org',
    );
  // A name with other characters is no variable; a rule of "cay net inject" has another one then.
  const env = /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? { env: name } : {};
  return targets.split(',').map((to) => ({ to, put: { as: 'placeholder', secret: name, ...env } }));
}

function networkOf({ network, allow, deny, secret = [] }: SandboxOptions): { network?: NetworkPolicy } {
  const policy = policyOf(network, [...(allow ?? []), ...secret.flatMap(secretRules)], deny);
  return policy === undefined ? {} : { network: policy };
}

export function withSandboxOptions(command: Command): Command {
  return command
    .optionsGroup('Sandbox options:')
    .option('--template <name>', 'what to start from (default: base)')
    .option('--image <name>', 'an image to start from, such as python:3.12-slim; pulled if it is not there')
    .option(
      '--runtime <name>',
      'the isolation, such as runsc, crun or runc (default: the strongest that is allowed)',
    )
    .option('--platform <name>', 'which of several backends makes it (default: by its labels, or the first)')
    .option('--name <name>', 'a name of your own')
    .option('-l, --label <key=value>', 'a label; may be repeated', pairs())
    .option(
      '-e, --env <key=value>',
      'an environment variable, or the name of one of yours; may be repeated',
      pairs(process.env),
    )
    .option('-w, --workdir <dir>', 'where commands start')
    .option('-u, --user <user>', 'as whom commands run')
    .option('--cpus <number>', 'cores, such as 2 or 0.5', parseCpus)
    .option('-m, --memory <size>', 'memory, such as 512m or 2g', parseSize)
    .option('--disk <size>', 'disk, such as 5g', parseSize)
    .option('--pids <number>', 'processes and threads', parseCount)
    .option('--read-only', 'only /tmp, /run and /dev/shm can be written')
    .option(
      '-v, --volume <mount>',
      'a volume as NAME:/path[:ro][,subpath=DIR], or a directory of the host as /dir:/path[:rw]; may be repeated',
      (text: string, before: Mounts | undefined) => [...(before ?? []), parseVolume(text)],
    )
    .option(
      '--bucket <copy>',
      'a bucket as NAME[:PREFIX]:/path, mounted with ,mount or ,mount,ro; else a copy, with ,down or ,up for one direction, ,deletions, ,conflict=bucket or ,conflict=sandbox; may be repeated',
      (text: string, before: Buckets | undefined) => [...(before ?? []), parseBucket(text)],
    )
    .option(
      '--tmpfs <mount>',
      'memory as a directory, such as /scratch:size=64m,mode=1777; may be repeated',
      (text: string, before: Mounts | undefined) => [...(before ?? []), parseTmpfs(text)],
    )
    .option(
      '--publish <ports>',
      "a port of the server's machine that leads to a port inside, such as 8080:80 or 5353:53/udp; may be repeated",
      (text: string, before: Publish[] | undefined) => [...(before ?? []), parsePublish(text)],
    )
    .addOption(
      new Option('--network <policy>', "what it reaches outside (default: the server's)").choices(POLICIES),
    )
    .option(
      '--join <network>',
      'a named network, whose sandboxes reach each other by name; may be repeated',
      collected,
    )
    .option('--allow <rule>', 'a name, address or preset that it reaches, too; may be repeated', collected)
    .option('--deny <rule>', 'one that it does not reach; may be repeated', collected)
    .option(
      '--secret <name=host,...>',
      'a stored secret that is put on requests to a host; commands find its placeholder in $NAME; may be repeated',
      collected,
    );
}

export function sandboxRequest(options: SandboxOptions): CreateSandboxInput {
  if (options.template !== undefined && options.image !== undefined)
    throw usageError('--template and --image both say what to start from', 'give one of them');
  // A name without a tag would be that of a template.
  const image = options.image && !/[:/@]/.test(options.image) ? `${options.image}:latest` : options.image;
  const template = image ?? options.template;
  return {
    ...(template !== undefined && { template }),
    ...(options.runtime !== undefined && { runtime: options.runtime }),
    ...(options.platform !== undefined && { platform: options.platform }),
    ...(options.name !== undefined && { name: options.name }),
    ...(options.label && { labels: options.label }),
    ...(options.env && { env: options.env }),
    ...(options.workdir !== undefined && { workdir: options.workdir }),
    ...(options.user !== undefined && { user: options.user }),
    ...(options.readOnly && { readOnlyRoot: true }),
    ...networkOf(options),
    ...(options.join && { networks: options.join }),
    ...(options.publish && { publish: options.publish }),
    ...bucketsOf(options),
    limits: {
      ...(options.cpus !== undefined && { cpus: options.cpus }),
      ...(options.memory !== undefined && { memoryBytes: options.memory }),
      ...(options.disk !== undefined && { diskBytes: options.disk }),
      ...(options.pids !== undefined && { pids: options.pids }),
    },
  };
}

function bucketsOf({ bucket = [], volume = [], tmpfs = [] }: SandboxOptions): Partial<CreateSandboxInput> {
  const copies = bucket.flatMap((one) => ('copy' in one ? [one.copy] : []));
  const mounts = [...volume, ...tmpfs, ...bucket.flatMap((one) => ('mount' in one ? [one.mount] : []))];
  return { ...(copies.length > 0 && { buckets: copies }), ...(mounts.length > 0 && { mounts }) };
}
