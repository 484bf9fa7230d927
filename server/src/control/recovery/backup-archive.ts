/**
 * A backup: records and events of one installation, its secrets among them, as a tar archive that says what
 * it must contain. Both databases are copied while they are used, each as it is at one moment. Sandboxes'
 * files are not in it, nor is the key that secrets are sealed with, unless it is asked for.
 *
 *     manifest.json · records.db · events.db · secret.key
 */
import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, open, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { CayError, type AuditVerdict } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { z } from 'zod';
import { byteReader, type ByteReader, TruncatedError } from '../../lib/byte-reader.ts';
import { BLOCK, decodeHeader, paddingOf } from '../../lib/tar/header.ts';
import { fileHeader, padding, tarEnd } from '../../lib/tar/pack.ts';
import { verifyOffline } from '../events/verify-offline.ts';
import { KEY_FILE, openInstallationKey } from '../../records/sealing/installation-key.ts';
import type { Records } from '../../records/records.ts';
import { MIGRATIONS } from '../../records/sqlite/migrations.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

const FILES = ['records.db', 'events.db', KEY_FILE] as const;
const FileFacts = z.object({ sizeBytes: z.int().min(0), sha256: z.string().regex(/^[0-9a-f]{64}$/) });
const Manifest = z.object({
  format: z.literal(1),
  version: z.string(),
  createdAtMs: z.int(),
  files: z.object({ 'records.db': FileFacts, 'events.db': FileFacts, [KEY_FILE]: FileFacts.optional() }),
});
type Manifest = z.infer<typeof Manifest>;

export interface BackupFacts {
  /** Of Cay, when it was made. */
  version: string;
  createdAtMs: number;
  bytes: number;
  /** Whether the key that its secrets are sealed with is in it. */
  withKey: boolean;
  audit: AuditVerdict;
}

const SCRATCH = '.backup-';
const MOST_MANIFEST = 64 * 1024;

export interface BackedUp {
  records: Pick<Records, 'backup'>;
  version: string;
}

/** Resolves when the copies are made. They are in `scratch` until the stream was read or closed. */
export async function backup(
  { records, version }: BackedUp,
  options: { scratch: string; signal?: AbortSignal; keyFile?: string | undefined },
): Promise<AsyncIterable<Uint8Array>> {
  const directory = await mkdtemp(join(options.scratch, SCRATCH));
  const discard = () => rm(directory, { recursive: true, force: true });
  try {
    await records.backup(directory);
    if (options.keyFile !== undefined) await copyKey(options.keyFile, join(directory, KEY_FILE));
    options.signal?.throwIfAborted();
    const manifest: Manifest = {
      format: 1,
      version,
      createdAtMs: Date.now(),
      files: {
        'records.db': await factsOf(directory, 'records.db'),
        'events.db': await factsOf(directory, 'events.db'),
        ...(options.keyFile !== undefined && { [KEY_FILE]: await factsOf(directory, KEY_FILE) }),
      },
    };
    await writeFile(join(directory, 'manifest.json'), JSON.stringify(manifest));
    options.signal?.addEventListener('abort', () => inBackground(discard(), ignoreFailure), { once: true });
    return archive(directory, manifest, discard);
  } catch (error) {
    await discard();
    throw asCayError(error);
  }
}

/** Removes what a server that was killed during a backup has left. */
export async function sweepBackups(directory: string): Promise<void> {
  for (const name of await readdir(directory))
    if (name.startsWith(SCRATCH)) await rm(join(directory, name), { recursive: true, force: true });
}

/**
 * Unpacks a backup into a directory of its own and checks everything in it, the seals too if the key is in
 * the backup or in the given directory. Rejects `invalid_argument` if it is not complete.
 */
export async function verifyBackup(path: string, keyDirectory?: string): Promise<BackupFacts> {
  const directory = await mkdtemp(join(tmpdir(), 'cay-backup-'));
  try {
    return await unpack(path, directory, keyDirectory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/**
 * Makes a directory of records of a backup, in one step. Rejects `failed_precondition` if there are records
 * already, or if the key that they are sealed with is neither in the backup nor given here.
 */
export async function restoreBackup(path: string, directory: string): Promise<BackupFacts> {
  if (existsSync(join(directory, 'records.db'))) {
    throw new CayError(
      'failed_precondition',
      `Cannot restore into "${directory}": there are records already`,
      {
        hint: 'choose another data directory with --data, or move the records away first',
      },
    );
  }
  await mkdir(dirname(directory), { recursive: true });
  const aside = await mkdtemp(`${directory}.restoring-`);
  try {
    const facts = await unpack(path, aside, directory);
    await rm(join(aside, 'manifest.json'));
    const key = join(directory, KEY_FILE);
    if (!facts.withKey && existsSync(key)) await copyKey(key, join(aside, KEY_FILE));
    // The backup is moved into place after it was opened once.
    openInstallationKey(aside, process.env, directory);
    // Left empty, or with a lock alone, by a server that has not come far.
    await rm(directory, { recursive: true, force: true });
    await rename(aside, directory);
    return facts;
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
}

async function* archive(
  directory: string,
  { createdAtMs: atMs, files }: Manifest,
  discard: () => Promise<void>,
): AsyncGenerator<Uint8Array> {
  try {
    for (const name of ['manifest.json', ...FILES.filter((file) => files[file])]) {
      const path = join(directory, name);
      const { size } = await stat(path);
      yield fileHeader(name, size, { mode: 0o600, modifiedAtMs: atMs });
      yield* createReadStream(path, { highWaterMark: 256 * 1024 }) as AsyncIterable<Buffer>;
      yield padding(size);
    }
    yield tarEnd();
  } finally {
    await discard();
  }
}

async function copyKey(from: string, to: string): Promise<void> {
  if (existsSync(from)) return copyFile(from, to);
  throw new CayError(
    'failed_precondition',
    `Cannot put the key into the backup: it does not come from "${from}"`,
    {
      hint: 'make the backup without it, and keep what CAY_SECRET_KEY or CAY_SECRET_KEY_COMMAND give yourself',
    },
  );
}

async function factsOf(directory: string, name: string): Promise<z.infer<typeof FileFacts>> {
  const hash = createHash('sha256');
  let sizeBytes = 0;
  for await (const chunk of createReadStream(join(directory, name)) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    sizeBytes += chunk.length;
  }
  return { sizeBytes, sha256: hash.digest('hex') };
}

async function unpack(path: string, directory: string, keyDirectory = directory): Promise<BackupFacts> {
  const damaged = (why: string, cause?: unknown) =>
    new CayError('invalid_argument', `"${path}" is not a whole backup: ${why}`, { cause });
  const reader = byteReader(createReadStream(path) as AsyncIterable<Buffer>);
  let manifest: Manifest;
  try {
    const text = await entry(reader, 'manifest.json', MOST_MANIFEST);
    manifest = Manifest.parse(JSON.parse((await text.whole()).toString()));
    await writeFile(join(directory, 'manifest.json'), JSON.stringify(manifest));
    for (const name of FILES.filter((file) => manifest.files[file])) {
      const { sizeBytes, sha256 } = manifest.files[name]!;
      const content = await entry(reader, name, sizeBytes);
      await content.into(join(directory, name));
      const found = await factsOf(directory, name);
      if (found.sha256 !== sha256) throw new Error(`"${name}" is damaged`);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).syscall === 'open')
      throw new CayError('not_found', `Cannot read "${path}"`, { cause: error });
    throw damaged(
      error instanceof z.ZodError || error instanceof SyntaxError
        ? 'it does not say what it contains'
        : systemReason(error),
      error,
    );
  } finally {
    await reader.close();
  }
  for (const name of ['records.db', 'events.db'])
    requireSound(join(directory, name), (why) => damaged(`"${name}" ${why}`));
  const audit = await verifyOffline(directory, keyDirectory);
  if (audit.broken)
    throw damaged(`its chain of events is broken at event ${audit.broken.id}: ${audit.broken.reason}`);
  const bytes = manifest.files['records.db'].sizeBytes + manifest.files['events.db'].sizeBytes;
  return {
    version: manifest.version,
    createdAtMs: manifest.createdAtMs,
    bytes,
    withKey: manifest.files[KEY_FILE] !== undefined,
    audit,
  };
}

function requireSound(path: string, damaged: (why: string) => CayError): void {
  const sqlite = new DatabaseSync(path, { readOnly: true });
  try {
    const { integrity_check: verdict } = sqlite.prepare('PRAGMA integrity_check').get() as {
      integrity_check: string;
    };
    if (verdict !== 'ok') throw damaged(verdict);
    const { user_version: version } = sqlite.prepare('PRAGMA user_version').get() as { user_version: number };
    if (path.endsWith('records.db') && version > MIGRATIONS.length)
      throw damaged('was written by a newer version of Cay');
  } finally {
    sqlite.close();
  }
}

/** The next entry, which must be this one and no larger. */
async function entry(reader: ByteReader, name: string, most: number) {
  const head = await reader.exactly(BLOCK);
  if (head.length === 0) throw new TruncatedError();
  const { name: found, type, sizeBytes } = decodeHeader(head, {});
  if (found !== name || type !== 'file' || sizeBytes > most) throw new Error(`"${name}" is missing`);
  async function* chunks(): AsyncGenerator<Uint8Array> {
    for (let left = sizeBytes; left > 0;) {
      const part = await reader.some(left);
      if (part.length === 0) throw new TruncatedError();
      left -= part.length;
      yield part;
    }
    await reader.exactly(paddingOf(sizeBytes));
  }
  return {
    whole: async () => Buffer.concat(await Array.fromAsync(chunks())),
    async into(path: string) {
      const file = await open(path, 'wx', 0o600);
      try {
        for await (const part of chunks())
          for (let at = 0; at < part.length;) at += (await file.write(part, at)).bytesWritten;
        await file.datasync();
      } finally {
        await file.close();
      }
    },
  };
}

function asCayError(error: unknown): unknown {
  const { errcode, code } = error as { errcode?: number; code?: string };
  if (errcode !== 13 && code !== 'ENOSPC') return error;
  return new CayError('resource_exhausted', 'Cannot make a backup: the disk is full', {
    cause: error,
    hint: 'it needs as much room beside the records as they take, until it was sent',
  });
}
