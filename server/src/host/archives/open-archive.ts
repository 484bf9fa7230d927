import { CayError } from '@cay/sdk/protocol';
import { unlessAborted } from '../../lib/timeout.ts';
import { decompress } from './compression.ts';
import { damaged, type Digest, type EnvelopeReader, readEnvelope } from './envelope.ts';
import { type Manifest, ManifestSchema, MAX_MANIFEST_BYTES } from './manifest.ts';

/** The parts of an archive in their order: each is read to its end before the next. */
export interface OpenArchive {
  manifest(): Promise<Manifest>;
  /** A tar archive with names relative to the root. Nothing in it is checked. */
  tree(): AsyncIterable<Uint8Array>;
  /** Reads over the memory image, if there is one. */
  skipMemory(): Promise<void>;
  /** Nothing that was read is trustworthy before this resolves. */
  end(): Promise<Digest>;
  close(): Promise<void>;
}

/** For platforms that unpack the tree themselves. Every defect rejects with `invalid_argument`. */
export function openArchive(
  source: AsyncIterable<Uint8Array>,
  { signal }: { signal?: AbortSignal } = {},
): OpenArchive {
  const envelope = readEnvelope(abortable(source, signal));
  let known: Manifest | undefined;
  const part = (name: string) => decompress(envelope.part(name), known!.compression);
  return {
    manifest: async () => (known = await readManifest(envelope)),
    tree: () => part('tree'),
    async skipMemory() {
      for (const { name, bytes } of known?.memory?.files ?? []) {
        let length = 0;
        for await (const chunk of part(`memory/${name}`)) length += chunk.length;
        if (length !== bytes) throw damaged(`"${name}" has ${length} bytes and not ${bytes}`);
      }
    },
    end: () => envelope.end(),
    close: () => envelope.close(),
  };
}

export async function readManifest(envelope: EnvelopeReader): Promise<Manifest> {
  const text = (await envelope.manifest(MAX_MANIFEST_BYTES)).toString();
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw damaged('its manifest is not JSON', error);
  }
  const result = ManifestSchema.safeParse(parsed);
  if (!result.success)
    throw new CayError('invalid_argument', 'The archive is of a kind that is not known', {
      cause: result.error,
    });
  return result.data;
}

/** A source that is silent must not delay the abort. */
export async function* abortable(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void, undefined> {
  signal?.throwIfAborted();
  const iterator = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const coming = iterator.next();
      // It may fail when nobody waits for it any more.
      coming.catch(() => {});
      const next = await unlessAborted(coming, signal);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // A generator that is busy would return only when it is done.
    const returned = Promise.resolve(iterator.return?.()).catch(() => {});
    if (!signal?.aborted) await returned;
  }
}
