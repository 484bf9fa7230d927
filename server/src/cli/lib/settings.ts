/** Where the data is, where the server listens and with which key: flags, then environment, then defaults. */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { usageError } from './failure.ts';
import type { DockerSettings } from '../verb.ts';

export interface CommonOptions {
  data?: string;
  url?: string;
  json?: boolean;
}

export const DEFAULT_LISTEN = '127.0.0.1:7070';

export function dataDirOf(options: CommonOptions): string {
  const root = process.getuid?.() === 0;
  return resolve(
    options.data ?? process.env['CAY_DATA'] ?? (root ? '/var/lib/cay' : join(homedir(), '.local/share/cay')),
  );
}

export function listenOf(text: string = process.env['CAY_LISTEN'] ?? DEFAULT_LISTEN): {
  host: string;
  port: number;
} {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]*)):(\d{1,5})$/i.exec(text);
  const port = Number(match?.[3]);
  if (!match || port > 65_535)
    throw usageError(
      `"${text}" is not an address to listen on`,
      'give HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070',
    );
  return { host: match[1] ?? (match[2] || '127.0.0.1'), port };
}

/** What the server leaves for the command line of the same machine. Readable by its user alone. */
export interface CliFile {
  url: string;
  key: string;
  backend?: string;
  /** The engine that has the sandboxes, so that they can be found again to be removed. */
  docker?: DockerSettings;
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
/** Held by whoever starts or is the server. */
export const lockFileOf = (dataDir: string) => join(dataDir, 'up.lock');
export const logFileOf = (dataDir: string) => join(dataDir, 'server.log');

/** Absent or broken is the same: there is nothing to go by. */
export function readFileOr<T>(path: string): T | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as T;
  } catch {
    return undefined;
  }
}

export interface Address {
  url: string;
  apiKey: string | undefined;
  /** The server belongs to this machine's data directory, so it may be started. */
  own: boolean;
}

export function addressOf(options: CommonOptions): Address {
  const chosen = options.url ?? process.env['CAY_URL'];
  const stored = readFileOr<CliFile>(cliFileOf(dataDirOf(options)));
  const { host, port } = listenOf();
  const local = stored?.url ?? `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
  return {
    url: chosen ?? local,
    // A key that was made for the server here is not shown to another one.
    apiKey:
      process.env['CAY_API_KEY'] ??
      (chosen === undefined || chosen === stored?.url ? stored?.key : undefined),
    own: chosen === undefined,
  };
}
