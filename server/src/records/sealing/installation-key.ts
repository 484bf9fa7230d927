/**
 * The key that seals environments and secrets in the records. It is not in the records themselves, so that
 * a copy of the records alone gives no secrets away. It comes from `CAY_SECRET_KEY`, from what
 * `CAY_SECRET_KEY_COMMAND` prints, or from a file beside the records, which is made at the first start.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { CayError } from '@cay/sdk/protocol';
import { KEY_BYTES, isSealed, keyIdOf, sealedBox, type SealedBox } from '../../lib/sealed-box.ts';

/** In the directory of the records. */
export const KEY_FILE = 'secret.key';
const COMMAND_MS = 30_000;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Rejects `failed_precondition` if the records in the directory were sealed with another key, or with one
 * that is missing. A new key is made only where nothing is sealed yet.
 */
export function openInstallationKey(
  directory: string,
  env: Environment = process.env,
  shownAs = directory,
): SealedBox {
  return matchingKey(directory, keyOfRecords(join(directory, 'records.db')), env, shownAs);
}

/** The same for records that are elsewhere; `sealedBy` is the id of the key that they are sealed with. */
export function matchingKey(
  directory: string,
  sealedBy: string | undefined,
  env: Environment = process.env,
  shownAs = directory,
): SealedBox {
  const box = knownKey(directory, env);
  if (box === undefined) {
    if (sealedBy === undefined) return sealedBox(createKey(join(directory, KEY_FILE)));
    throw new CayError(
      'failed_precondition',
      `The key ${sealedBy} that the records in "${shownAs}" are sealed with is missing`,
      {
        details: { keyId: sealedBy },
        hint: `put its file back as "${join(shownAs, KEY_FILE)}", or give it in CAY_SECRET_KEY`,
      },
    );
  }
  if (sealedBy !== undefined && sealedBy !== box.keyId) {
    throw new CayError(
      'failed_precondition',
      `The records in "${shownAs}" are sealed with key ${sealedBy}, and this is key ${box.keyId}`,
      {
        details: { keyId: sealedBy },
        hint: `give the right key: in CAY_SECRET_KEY, by CAY_SECRET_KEY_COMMAND, or as "${join(shownAs, KEY_FILE)}"`,
      },
    );
  }
  return box;
}

/** The key that is given here, or `undefined` if none is. */
export function knownKey(directory: string, env: Environment = process.env): SealedBox | undefined {
  const { CAY_SECRET_KEY: given, CAY_SECRET_KEY_COMMAND: command } = env;
  if (given !== undefined && given !== '') return sealedBox(decoded(given, 'CAY_SECRET_KEY'));
  if (command !== undefined && command !== '')
    return sealedBox(decoded(outputOf(command), 'What CAY_SECRET_KEY_COMMAND prints'));
  const path = join(directory, KEY_FILE);
  return existsSync(path) ? sealedBox(decoded(readFileSync(path, 'utf8'), `"${path}"`)) : undefined;
}

function decoded(text: string, where: string): Uint8Array {
  const key = Buffer.from(text.trim(), 'base64');
  if (key.length === KEY_BYTES) return key;
  throw new CayError('failed_precondition', `${where} is no key: it has to be ${KEY_BYTES} bytes in base64`, {
    hint: 'make one with: openssl rand -base64 32',
  });
}

function outputOf(command: string): string {
  try {
    return execFileSync('/bin/sh', ['-c', command], {
      encoding: 'utf8',
      timeout: COMMAND_MS,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
  } catch (error) {
    // What it printed may be the key, so that nothing of the error is passed on but its status.
    const { status, signal } = error as { status?: number | null; signal?: string | null };
    throw new CayError(
      'failed_precondition',
      `CAY_SECRET_KEY_COMMAND failed (${status ?? signal ?? 'not started'})`,
      {
        hint: 'run it by hand as the user that the server runs as',
      },
    );
  }
}

function createKey(path: string): Uint8Array {
  const key = randomBytes(KEY_BYTES);
  const unfinished = `${path}.tmp`;
  const file = openSync(unfinished, 'w', 0o600);
  try {
    writeSync(file, `${key.toString('base64')}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(unfinished, path);
  const directory = openSync(join(path, '..'), 'r');
  fsyncSync(directory);
  closeSync(directory);
  return key;
}

/** The id of the key that records are sealed with, or `undefined` if none of them are. */
function keyOfRecords(path: string): string | undefined {
  if (!existsSync(path)) return undefined;
  const sqlite = new DatabaseSync(path);
  try {
    const tables = sqlite
      .prepare(`SELECT count(*) AS found FROM sqlite_schema WHERE name = 'secrets'`)
      .get() as { found: number };
    if (tables.found === 0) return undefined;
    const values = sqlite.prepare('SELECT value FROM secrets').all() as { value: Uint8Array }[];
    const sealed = values.map(({ value }) => Buffer.from(value).toString()).find(isSealed);
    return sealed === undefined ? undefined : keyIdOf(sealed);
  } finally {
    sqlite.close();
  }
}
