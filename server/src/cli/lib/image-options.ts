/** The flags of `up` that say where images come from, each with a variable of the environment. */
import { resolve } from 'node:path';
import { Option, type Command } from 'commander';
import type { ImageFlags } from '../verb.ts';
import { usageError } from './failure.ts';
import { parseSize } from './units.ts';

export interface ImageOptions {
  registryConfig?: string;
  registryMirror?: string[];
  allowRegistry?: string[];
  insecureRegistry?: string[];
  imageStore?: number;
  maxImageSize?: number;
}

const HOST = /^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?$/;

const listed = (text: string, before: string[] = []) => [
  ...before,
  ...text
    .split(',')
    .map((each) => each.trim().toLowerCase())
    .filter((each) => each !== ''),
];

export function withImageOptions(command: Command): Command {
  const list = (flags: string, description: string, variable: string) =>
    new Option(flags, `${description}; with commas, or repeated`).env(variable).argParser(listed);
  return command
    .addOption(
      new Option(
        '--registry-config <file>',
        "credentials for registries, as in Docker's config.json, for the images of every project",
      ).env('CAY_REGISTRY_CONFIG'),
    )
    .addOption(
      list(
        '--registry-mirror <mirrors>',
        'a mirror to ask before a registry, as REGISTRY=MIRROR',
        'CAY_REGISTRY_MIRROR',
      ),
    )
    .addOption(
      list(
        '--allow-registry <hosts>',
        'registries on this machine or in private networks that images may come from',
        'CAY_ALLOW_REGISTRY',
      ),
    )
    .addOption(
      list(
        '--insecure-registry <hosts>',
        'registries that are spoken to without TLS, wherever they are',
        'CAY_INSECURE_REGISTRY',
      ),
    )
    .addOption(
      new Option('--image-store <size>', 'disk for images; those unused for longest go first (default: 64g)')
        .env('CAY_IMAGE_STORE')
        .argParser(parseSize),
    )
    .addOption(
      new Option('--max-image-size <size>', 'the most that an image may have unpacked (default: 16g)')
        .env('CAY_MAX_IMAGE_SIZE')
        .argParser(parseSize),
    );
}

/** Throws a usage error for what cannot be. */
export function imageFlagsOf(options: ImageOptions): ImageFlags {
  const { allowRegistry = [], insecureRegistry = [], registryMirror = [], registryConfig } = options;
  const strange = [...allowRegistry, ...insecureRegistry].find((host) => !HOST.test(host));
  if (strange !== undefined)
    throw usageError(`"${strange}" is not a registry`, 'give its host, and its port if it has one');
  const mirrors: Record<string, string[]> = {};
  for (const pair of registryMirror) {
    const [registry = '', mirror = '', ...rest] = pair.split('=');
    if (rest.length > 0 || !HOST.test(registry) || !HOST.test(mirror))
      throw usageError(
        `--registry-mirror does not understand "${pair}"`,
        'give REGISTRY=MIRROR, such as docker.io=mirror.example.com',
      );
    (mirrors[registry] ??= []).push(mirror);
  }
  return {
    private: allowRegistry,
    insecure: insecureRegistry,
    mirrors,
    ...(registryConfig !== undefined && { credentialsFile: resolve(registryConfig) }),
    ...(options.imageStore !== undefined && { maxStoreBytes: options.imageStore }),
    ...(options.maxImageSize !== undefined && { maxImageBytes: options.maxImageSize }),
  };
}

/** The same flags again. */
export function imageFlags(options: ImageOptions): string[] {
  const text = (flag: string, value: string | number | undefined) =>
    value === undefined ? [] : [flag, String(value)];
  const joined = (flag: string, values: string[] | undefined) =>
    values?.length ? [flag, values.join(',')] : [];
  return [
    ...text('--registry-config', options.registryConfig && resolve(options.registryConfig)),
    ...joined('--registry-mirror', options.registryMirror),
    ...joined('--allow-registry', options.allowRegistry),
    ...joined('--insecure-registry', options.insecureRegistry),
    ...text('--image-store', options.imageStore),
    ...text('--max-image-size', options.maxImageSize),
  ];
}
