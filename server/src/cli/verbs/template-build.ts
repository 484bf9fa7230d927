/** `cay template build`. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Option, type Command } from 'commander';
import {
  CayError,
  type BuildContextInfo,
  type BuildLine,
  type BuildTemplate,
  type NamedPolicy,
  type ReadinessCheck,
  type TemplateBuild,
  type TemplateBuildPage,
} from '@cay/sdk/client';
import { ignoreFile, type IgnoreFile } from '../../lib/globs/ignore-file.ts';
import { pack } from '../lib/archive/pack.ts';
import type { Client } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { errorColour, print, printJson, printable } from '../lib/output.ts';
import { pathError } from '../lib/path-error.ts';
import { showProgress } from '../lib/progress.ts';
import { POLICIES, policyOf } from '../lib/sandbox-options.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { withServer } from '../lib/with-server.ts';
import type { Composition } from '../verb.ts';

interface BuildOptions extends CommonOptions {
  file?: string;
  preset?: string;
  buildArg: string[];
  secret: string[];
  target?: string;
  tag: string[];
  cache: boolean;
  network?: NamedPolicy;
  allow?: string[];
  start?: string;
  readyPort?: string;
  readyHttp?: string;
  readyFile?: string;
  readyCommand?: string;
}

const PRESETS = ['python', 'node', 'code-interpreter'];
const DOCKERFILE = 'Dockerfile';
const IGNORE = '.dockerignore';
const collect = (value: string, before: string[] = []) => [...before, value];

export function addBuild(command: Command, composition: Composition): void {
  const build = command
    .command('build')
    .description('build a template from a Dockerfile; each step runs in a sandbox')
    .argument('[name]', 'how it will be called; a tag may follow after ":" (default: that of the preset)')
    .argument('[context]', 'the directory for COPY and ADD', '.')
    .option(
      '-f, --file <path>',
      'the Dockerfile, or - for standard input (default: Dockerfile of the context)',
    )
    .option('--preset <preset>', `a Dockerfile of ours in place of your own: ${PRESETS.join(', ')}`)
    .option('--build-arg <name=value>', 'a value for ARG; without "=" that of the environment', collect, [])
    .option('--secret <id=…,src=…>', 'a file, or env=NAME, for RUN --mount=type=secret', collect, [])
    .option('--target <stage>', 'the stage to build (default: the last)')
    .option('-t, --tag <tag>', 'a further tag that leads to it', collect, [])
    .option('--no-cache', 'run every step again')
    .addOption(
      new Option('--network <policy>', "what steps reach outside (default: the server's)").choices(POLICIES),
    )
    .option('--allow <rule>', 'a name, address or preset that steps reach, too; may be repeated', collect)
    .option('--start <command>', 'a command line that runs in every sandbox of the template')
    .option('--ready-port <port>', 'the start command is ready when a program listens on it')
    .option('--ready-http <url>', 'when this answers, such as http://localhost:8000/')
    .option('--ready-file <path>', 'when this file exists')
    .option('--ready-command <line>', 'when this exits with 0');
  withCommonOptions(build)
    .addHelpText(
      'after',
      `
  cay template build web .
  cay template build web . -f docker/Dockerfile --target runtime --build-arg VERSION=3
  cay template build web . --secret id=npm,src=$HOME/.npmrc
  cay template build api . --start 'node server.js' --ready-port 3000
  cay template build --preset python
  cay template build science --preset python --build-arg FROM=python:3.13-slim`,
    )
    .action((name: string | undefined, context: string, options: BuildOptions) => {
      const called = name ?? options.preset;
      if (called === undefined)
        throw new CayError('invalid_argument', 'The template has no name', {
          hint: 'cay template build NAME [CONTEXT]',
        });
      if (/^[./]/.test(called))
        throw new CayError(
          'invalid_argument',
          `"${called}" is a path, and the name of the template comes first`,
          {
            hint: `cay template build NAME ${called}`,
          },
        );
      return run(composition, called, options.preset === undefined ? context : '-', options);
    });
}

async function run(
  composition: Composition,
  name: string,
  directory: string,
  options: BuildOptions,
): Promise<void> {
  const dockerfile =
    options.preset === undefined ? await dockerfileOf(directory, options.file) : await presetOf(options);
  const request: BuildTemplate = {
    name,
    tags: options.tag,
    dockerfile: dockerfile.text,
    args: argsOf(options.buildArg),
    secrets: await secretsOf(options.secret),
    noCache: !options.cache,
    ...(options.target !== undefined && { target: options.target }),
    ...(options.start !== undefined && { start: options.start }),
    ...readyOf(options),
  };
  const network = policyOf(options.network, options.allow, undefined);
  if (network !== undefined) request.network = network;
  const ignore = await ignoreOf(directory, dockerfile.path);
  // Started if there is none. From then on a server that goes away is an error, and not a reason to build
  // twice.
  const client = await withServer(composition, options, async (found) => {
    await found.transport.json<TemplateBuildPage>('GET', '/v1/builds');
    return found;
  });
  const context = directory === '-' ? undefined : await upload(client, directory, ignore);
  const json = { ...request, ...(context && { context: context.digest }) };
  const begun = await client.transport.json<TemplateBuild>('POST', '/v1/builds', { json });
  const ended = await follow(client, begun.id, options);
  if (options.json) printJson(ended);
  if (ended.state === 'failed')
    throw new CayError(
      'failed_precondition',
      `The build has failed: ${ended.failure?.message ?? 'for no known reason'}`,
      { hint: ended.failure?.hint ?? 'what is printed above it says why' },
    );
  if (!options.json) for (const each of ended.names) print(each);
}

async function presetOf({ preset, file }: BuildOptions): Promise<{ text: string; path?: string }> {
  if (file !== undefined) throw new CayError('invalid_argument', 'Give --preset or --file, not both');
  if (!PRESETS.includes(preset!))
    throw new CayError('invalid_argument', `There is no preset "${preset}"`, {
      hint: `there are ${PRESETS.join(', ')}`,
    });
  return { text: await readFile(join(import.meta.dirname, '../presets', `${preset}.Dockerfile`), 'utf8') };
}

async function dockerfileOf(
  directory: string,
  file: string | undefined,
): Promise<{ text: string; path?: string }> {
  if (file === '-') {
    const parts: Uint8Array[] = [];
    for await (const part of process.stdin as AsyncIterable<Uint8Array>) parts.push(part);
    return { text: Buffer.concat(parts).toString('utf8') };
  }
  const path = file ?? join(directory, DOCKERFILE);
  try {
    return { text: await readFile(path, 'utf8'), path };
  } catch (error) {
    throw pathError('read', path, error);
  }
}

/** `<Dockerfile>.dockerignore` comes before the one of the context. */
async function ignoreOf(directory: string, dockerfile: string | undefined): Promise<IgnoreFile | undefined> {
  if (directory === '-') return undefined;
  for (const path of [
    ...(dockerfile === undefined ? [] : [`${dockerfile}${IGNORE}`]),
    join(directory, IGNORE),
  ]) {
    const text = await readFile(path, 'utf8').catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw pathError('read', path, error);
    });
    if (text === undefined) continue;
    try {
      return ignoreFile(text);
    } catch (error) {
      throw new CayError('invalid_argument', `Cannot read ${path}: ${(error as Error).message}`);
    }
  }
  return undefined;
}

function argsOf(given: readonly string[]): Record<string, string> {
  const args: Record<string, string> = {};
  for (const each of given) {
    const equals = each.indexOf('=');
    const name = equals < 0 ? each : each.slice(0, equals);
    const value = equals < 0 ? process.env[name] : each.slice(equals + 1);
    if (value !== undefined) args[name] = value;
  }
  return args;
}

async function secretsOf(given: readonly string[]): Promise<Record<string, string>> {
  const secrets: Record<string, string> = {};
  for (const each of given) {
    const fields = Object.fromEntries(
      each.split(',').map((part) => [part.split('=')[0], part.slice(part.indexOf('=') + 1)]),
    );
    const { id, src, source, env } = fields as Record<string, string | undefined>;
    const path = src ?? source;
    if (id === undefined)
      throw new CayError('invalid_argument', `--secret "${each}" has no id`, {
        hint: 'write --secret id=NAME,src=FILE',
      });
    if (path !== undefined)
      secrets[id] = await readFile(path, 'utf8').catch((error: unknown) => {
        throw pathError('read', path, error);
      });
    else {
      const value = process.env[env ?? id];
      if (value === undefined)
        throw new CayError('invalid_argument', `--secret "${each}": the variable ${env ?? id} is not set`, {
          hint: 'write --secret id=NAME,src=FILE',
        });
      secrets[id] = value;
    }
  }
  return secrets;
}

function readyOf({ readyPort, readyHttp, readyFile, readyCommand }: BuildOptions): {
  ready?: ReadinessCheck;
} {
  const checks: ReadinessCheck[] = [
    ...(readyPort === undefined ? [] : [{ port: Number(readyPort) }]),
    ...(readyHttp === undefined ? [] : [{ http: readyHttp }]),
    ...(readyFile === undefined ? [] : [{ file: readyFile }]),
    ...(readyCommand === undefined ? [] : [{ command: readyCommand }]),
  ];
  if (checks.length > 1)
    throw new CayError('invalid_argument', 'Give one of the --ready options, not several');
  return checks[0] ? { ready: checks[0] } : {};
}

async function upload(
  client: Client,
  directory: string,
  ignore: IgnoreFile | undefined,
): Promise<BuildContextInfo> {
  const progress = showProgress(`${directory} →`);
  try {
    const body = pack(directory, {
      onProgress: progress.bytes,
      ignores: (name) =>
        ignore?.ignoresAllBelow(name) ? 'tree' : ignore?.ignores(name) ? 'file' : undefined,
    });
    return await client.transport.json<BuildContextInfo>('POST', '/v1/builds/contexts', {
      headers: { 'content-type': 'application/x-tar' },
      body,
    });
  } finally {
    progress.finish();
  }
}

/** The log on standard error, until the build has ended. An interrupt cancels it. */
async function follow({ transport }: Client, id: string, options: BuildOptions): Promise<TemplateBuild> {
  const path = `/v1/builds/${id}`;
  const cancel = () => void transport.json('DELETE', path).catch(() => {});
  process.once('SIGINT', cancel);
  try {
    for await (const { log, build } of transport.lines<BuildLine>('GET', `${path}/log`)) {
      if (build) return build;
      if (!log || options.json || log.level === 'debug') continue;
      const text = printable(log.message);
      process.stderr.write(`${log.step ? errorColour.bold(text) : text}\n`);
    }
    return await transport.json<TemplateBuild>('GET', path);
  } finally {
    process.removeListener('SIGINT', cancel);
  }
}
