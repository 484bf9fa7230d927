/** Where the data is, where the server listens and with which key: flags, then environment, then defaults. */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { errnoOf } from '@cay/sdk/system-error';
import { usageError } from './failure.ts';
import { pathError } from './path-error.ts';
import { parseHostPort } from '../../lib/units.ts';
import type { DockerSettings } from '../verb.ts';

export interface CommonOptions {
  data?: string;
  url?: string;
  json?: boolean;
}

const DEFAULT_LISTEN = '127.0.0.1:7070';

export function dataDirOf(options: CommonOptions): string {
  const root = process.getuid?.() === 0;
  return resolve(
    options.data ??
      (process.env['CAY_DATA'] || undefined) ??
      (root ? '/var/lib/cay' : join(homedir(), '.local/share/cay')),
  );
}

/** Where the server would listen, for verbs that do not start it. */
export function listenOf(text = process.env['CAY_LISTEN'] || DEFAULT_LISTEN): { host: string; port: number } {
  try {
    return parseHostPort(text);
  } catch {
    throw usageError(
      `"${text}" is not an address to listen on`,
      'give HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070',
    );
  }
}

/** What the server leaves for the command line of the same machine. Readable by its user alone. */
export interface CliFile {
  url: string;
  key: string;
  /** The file of the server's certificate, which the command line trusts here. */
  certificate?: string;
  backend?: string;
  /** The engine that has the sandboxes, so that they can be found again to be removed. */
  docker?: DockerSettings;
  /** The same of a cluster: the variables of its settings, also where they were given as flags. */
  variables?: Record<string, string>;
}

/** What runs now, or did when it was killed. */
export interface ServerFile {
  pid: number;
  /** Tells the process from a later one with the same id. */
  startTime: number;
  /** And from one of another boot of the machine; absent in a file of an earlier version. */
  bootId?: string;
  url: string;
  backend: string;
  startedAtMs: number;
}

export const cliFileOf = (dataDir: string) => join(dataDir, 'cli.json');
export const serverFileOf = (dataDir: string) => join(dataDir, 'server.json');
/** Locked by the server, also while it starts. */
export const lockFileOf = (dataDir: string) => join(dataDir, 'up.lock');
export const logFileOf = (dataDir: string) => join(dataDir, 'server.log');

/**
 * Undefined if the file is missing or is not JSON. Throws if it may not be read: what is in it is then
 * unknown, and no default may take its place.
 */
export function readFileOr<T>(path: string): T | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ENOTDIR') return undefined;
    throw pathError(
      'read',
      path,
      error,
      'run this as the user of the server, or set CAY_URL and CAY_API_KEY',
    );
  }
  try {
    return JSON.parse(text) as T;
  } catch {
    return undefined;
  }
}

export interface Address {
  url: string;
  apiKey: string | undefined;
  /** A file with the certificate that this machine's own server shows. */
  certificate?: string;
  /** The server belongs to this machine's data directory, so it may be started. */
  own: boolean;
}

/**
 * A flag beats every variable: `--url`, `--data`, `CAY_URL`, then the data directory of `CAY_DATA` or the
 * default.
 */
export function addressOf(options: CommonOptions): Address {
  const { CAY_API_KEY } = process.env;
  const chosen = chosenUrl(options);
  if (chosen !== undefined) {
    requireHttp(chosen);
    // What was made for the server here is not used for another one.
    const here = fileOf(chosen, options);
    return { url: chosen, apiKey: CAY_API_KEY ?? here?.key, ...certificateOf(here), own: false };
  }
  const dataDir = dataDirOf(options);
  const stored = readFileOr<CliFile>(cliFileOf(dataDir));
  if (!stored && (options.data ?? process.env['CAY_DATA']) !== undefined) throw neverStarted(dataDir);
  const { host, port } = listenOf();
  return {
    url: stored?.url ?? `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    // With `--data` the key of that directory is meant, whatever another server's is.
    apiKey: (options.data === undefined ? CAY_API_KEY : undefined) ?? stored?.key ?? CAY_API_KEY,
    ...certificateOf(stored),
    own: true,
  };
}

function chosenUrl(options: CommonOptions): string | undefined {
  return options.url ?? (options.data === undefined ? process.env['CAY_URL'] : undefined);
}

/** The server is that of a data directory of this machine, so it may be started. */
export function isOwnServer(options: CommonOptions): boolean {
  return chosenUrl(options) === undefined;
}

/** The file of this machine's own server, if that is the server asked for. */
function fileOf(url: string, options: CommonOptions): CliFile | undefined {
  try {
    const stored = readFileOr<CliFile>(cliFileOf(dataDirOf(options)));
    return stored?.url === url ? stored : undefined;
  } catch {
    // Nothing of another user's data directory is needed to ask another server.
    return undefined;
  }
}

const certificateOf = (file: CliFile | undefined): { certificate?: string } =>
  file?.certificate === undefined ? {} : { certificate: file.certificate };

function requireHttp(url: string): void {
  if (/^https?:\/\/[^/]/.test(url) && URL.canParse(url)) return;
  throw usageError(`"${url}" is not the address of a server`, 'write it as http://HOST:PORT or https://HOST');
}

function neverStarted(dataDir: string): CayError {
  return new CayError('unavailable', `No server has used the data directory "${dataDir}" yet`, {
    hint: `start it with "cay up --data ${dataDir}", or check --data and CAY_DATA`,
  });
}
