/** Metadata of files: extended attributes in a namespace of their own, as E2B has them. */
import { CayError, isCayError } from '@cay/sdk/protocol';
import { changesOf, filesOf, type EnvdContext } from './context.ts';

const PREFIX = 'e2b.';
const HEADER = 'x-metadata-';
const MAX_BYTES = 4096;

/** Throws `invalid_argument`. Header names have no case, so keys are lower case. */
export function metadataOf(headers: NodeJS.Dict<string | string[]>): Record<string, string> {
  const metadata: [string, string][] = [];
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(HEADER) || name === HEADER || typeof value !== 'string') continue;
    if (!/^[\x20-\x7e]*$/.test(value))
      throw new CayError(
        'invalid_argument',
        `The value of metadata "${name.slice(HEADER.length)}" is not ASCII`,
      );
    metadata.push([name.slice(HEADER.length), value]);
  }
  const bytes = metadata.reduce((sum, [key, value]) => sum + key.length + value.length, 0);
  if (bytes > MAX_BYTES)
    throw new CayError('invalid_argument', `Metadata of a file take at most ${MAX_BYTES} bytes`);
  return Object.fromEntries(metadata);
}

/** Undefined if the file or its filesystem has none. */
export async function readMetadata(
  context: EnvdContext,
  path: string,
): Promise<Record<string, string> | undefined> {
  const attributes = await attributesOf(context, path);
  if (!attributes) return undefined;
  const own = Object.entries(attributes).filter(([name]) => name.startsWith(PREFIX));
  return Object.fromEntries(
    own.map(([name, value]) => [name.slice(PREFIX.length), Buffer.from(value).toString()]),
  );
}

/** Rejects `unsupported` if the filesystem has no extended attributes, before anything is written. */
export async function requireMetadata(context: EnvdContext, directory: string): Promise<void> {
  const probe = PREFIX + 'probe';
  const changes = await changesOf(context);
  await changes.setXattrs(directory, { [probe]: Buffer.alloc(0) });
  await changes.setXattrs(directory, { [probe]: null });
}

/** Replaces all metadata of the file. */
export async function writeMetadata(
  context: EnvdContext,
  path: string,
  metadata: Record<string, string>,
): Promise<void> {
  const before = await attributesOf(context, path);
  const removed = Object.keys(before ?? {}).filter((name) => name.startsWith(PREFIX));
  const set = Object.entries(metadata).map(([key, value]): [string, Buffer] => [
    PREFIX + key,
    Buffer.from(value),
  ]);
  if (removed.length === 0 && set.length === 0) return;
  const changes = await changesOf(context);
  await changes.setXattrs(path, {
    ...Object.fromEntries(removed.map((name) => [name, null])),
    ...Object.fromEntries(set),
  });
}

async function attributesOf(
  context: EnvdContext,
  path: string,
): Promise<Record<string, Uint8Array> | undefined> {
  try {
    return await filesOf(context).xattrs(path);
  } catch (error) {
    if (isCayError(error, 'unavailable')) throw error;
    return undefined;
  }
}
