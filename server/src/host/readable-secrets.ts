/**
 * Finds files in host directories that look like secrets and that every user may read. The template `base`
 * mounts `/usr` into every sandbox.
 */
import { open, opendir, stat } from 'node:fs/promises';
import { extname, join } from 'node:path';

const DIRECTORIES = ['/usr/local', '/usr/share'];
const MAX_ENTRIES = 300_000;
const MAX_MS = 3_000;
const MAX_FOUND = 20;
const HEAD_BYTES = 4_096;
/** A program or manual page about credentials is no secret. */
const DATA = ['', '.json', '.yaml', '.yml', '.ini', '.toml', '.txt', '.conf', '.cfg', '.db', '.csv'];

interface Options {
  directories?: readonly string[];
  maxEntries?: number;
  maxMs?: number;
}

/** `complete` is false if there were more files than the bound. */
export async function readableSecrets(
  options: Options = {},
): Promise<{ found: string[]; complete: boolean }> {
  const { directories = DIRECTORIES, maxEntries = MAX_ENTRIES, maxMs = MAX_MS } = options;
  const deadline = performance.now() + maxMs;
  const found: string[] = [];
  const ahead = [...directories];
  for (let entries = 0; ahead.length > 0;) {
    const path = ahead.pop()!;
    const directory = await opendir(path, { bufferSize: 256 }).catch(() => undefined);
    if (!directory) continue;
    for await (const entry of directory) {
      if (++entries > maxEntries || found.length === MAX_FOUND || performance.now() > deadline)
        return { found, complete: false };
      if (entry.isDirectory()) ahead.push(join(path, entry.name));
      else if (entry.isFile() && (await isSecret(join(path, entry.name), entry.name)))
        found.push(join(path, entry.name));
    }
  }
  return { found: found.toSorted(), complete: true };
}

async function isSecret(path: string, name: string): Promise<boolean> {
  const keyFile = /\.(pem|key)$/i.test(name);
  const named =
    name === '.env' ||
    name.startsWith('.env.') ||
    (/credential/i.test(name) && DATA.includes(extname(name).toLowerCase()));
  if (!keyFile && !named) return false;
  const { mode, size } = await stat(path);
  if ((mode & 0o004) === 0 || size === 0) return false;
  // A certificate alone is public.
  return named || (await head(path)).includes('PRIVATE KEY-----');
}

async function head(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
    return buffer.toString('latin1', 0, bytesRead);
  } finally {
    await file.close();
  }
}
