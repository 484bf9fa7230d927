/**
 * A store whose objects are encrypted with a key of the installation, around any other store.
 *
 *     CAYSEAL1 · id of the key (6 bytes) · salt (32 bytes) · pieces: up to 1 MiB and a tag (16 bytes)
 *
 * Each object has a key of its own, derived from the installation's and the salt. Pieces are AES-256-GCM; the
 * nonce has the number of the piece and whether it is the last, and the object's name is authenticated with
 * each. So an object cannot be changed, cut, put together of others or given another name without being
 * noticed when it is read.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import type { SealedBox } from '../lib/sealed-box.ts';
import { requireObjectName, requirePrefix } from './object-name.ts';
import type { Store, StoreCallOptions, StoredObject } from './store.ts';

export interface SealedStoreOptions {
  box: SealedBox;
  /**
   * Also reads objects that are not encrypted: those of earlier versions. For a place that nobody else writes
   * to, because they are not authenticated.
   */
  alsoPlain: boolean;
}

const MAGIC = Buffer.from('CAYSEAL1');
const KEY_ID_BYTES = 6;
const SALT_BYTES = 32;
const HEADER_BYTES = MAGIC.length + KEY_ID_BYTES + SALT_BYTES;
const PIECE_BYTES = 1024 * 1024;
const TAG_BYTES = 16;

export function sealedStore(inner: Store, { box, alsoPlain }: SealedStoreOptions): Store {
  const secret = box.derive('store');
  const ownId = Buffer.from(box.keyId, 'hex');

  const keyOf = (salt: Uint8Array) => Buffer.from(hkdfSync('sha256', secret, salt, 'cay store object', 32));

  async function* sealed(name: string, content: AsyncIterable<Uint8Array>, count: (bytes: number) => void) {
    const salt = randomBytes(SALT_BYTES);
    const key = keyOf(salt);
    yield Buffer.concat([MAGIC, ownId, salt]);
    let number = 0;
    const piece = (bytes: Uint8Array, isLast: boolean) => {
      const cipher = createCipheriv('aes-256-gcm', key, nonceOf(number++, isLast)).setAAD(Buffer.from(name));
      return Buffer.concat([cipher.update(bytes), cipher.final(), cipher.getAuthTag()]);
    };
    const pieces = piecesOf(content, PIECE_BYTES);
    let held = (await pieces.next()).value ?? Buffer.alloc(0);
    for await (const next of pieces) {
      count(held.length);
      yield piece(held, false);
      held = next;
    }
    count(held.length);
    yield piece(held, true);
  }

  async function* opened(name: string, content: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, void> {
    const source = content[Symbol.asyncIterator]();
    try {
      const { head, rest } = await headOf(source);
      if (!isSealed(head)) {
        if (!alsoPlain) throw damaged(name, 'it is not sealed');
        yield head;
        yield* remaining(rest, source);
        return;
      }
      if (head.length < HEADER_BYTES) throw damaged(name, 'it is too short');
      const by = head.subarray(MAGIC.length, MAGIC.length + KEY_ID_BYTES);
      if (!by.equals(ownId)) throw otherKey(name, by.toString('hex'), box.keyId);
      const key = keyOf(head.subarray(MAGIC.length + KEY_ID_BYTES));
      let number = 0;
      const open = (bytes: Buffer, isLast: boolean) => {
        if (bytes.length < TAG_BYTES) throw damaged(name, 'it was cut');
        const decipher = createDecipheriv('aes-256-gcm', key, nonceOf(number++, isLast));
        decipher.setAAD(Buffer.from(name)).setAuthTag(bytes.subarray(-TAG_BYTES));
        try {
          return Buffer.concat([decipher.update(bytes.subarray(0, -TAG_BYTES)), decipher.final()]);
        } catch {
          throw damaged(name, 'it was changed');
        }
      };
      const pieces = piecesOf(remaining(rest, source), PIECE_BYTES + TAG_BYTES);
      let held = (await pieces.next()).value ?? Buffer.alloc(0);
      for await (const next of pieces) {
        yield open(held, false);
        held = next;
      }
      yield open(held, true);
    } finally {
      await source.return?.();
    }
  }

  /** The size of what is inside. Where objects may be plain, the first bytes tell. */
  async function inside(
    { name, sizeBytes }: StoredObject,
    options?: StoreCallOptions,
  ): Promise<StoredObject> {
    if (alsoPlain) {
      const source = inner.get(name, options)[Symbol.asyncIterator]();
      try {
        if (!isSealed((await headOf(source)).head)) return { name, sizeBytes };
      } finally {
        await source.return?.();
      }
    }
    const bytes = Math.max(sizeBytes - HEADER_BYTES, 0);
    const pieces = Math.ceil(bytes / (PIECE_BYTES + TAG_BYTES));
    return { name, sizeBytes: bytes - pieces * TAG_BYTES };
  }

  return {
    name: inner.name,
    async put(name, content, options) {
      requireObjectName(name);
      let sizeBytes = 0;
      await inner.put(
        name,
        sealed(name, content, (bytes) => (sizeBytes += bytes)),
        options,
      );
      return { name, sizeBytes };
    },
    async *get(name, options) {
      requireObjectName(name);
      yield* opened(name, inner.get(name, options));
    },
    async stat(name, options) {
      const found = await inner.stat(name, options);
      return found && inside(found, options);
    },
    remove: (name, options) => inner.remove(name, options),
    async list(prefix = '', options) {
      requirePrefix(prefix);
      const found: StoredObject[] = [];
      for (const one of await inner.list(prefix, options)) found.push(await inside(one, options));
      return found;
    },
    close: () => inner.close(),
  };
}

function isSealed(head: Buffer): boolean {
  return head.subarray(0, MAGIC.length).equals(MAGIC);
}

function nonceOf(number: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeUInt8(isLast ? 1 : 0, 0);
  nonce.writeUInt32BE(number, 8);
  return nonce;
}

/** The header, and what came with it. */
async function headOf(source: AsyncIterator<Uint8Array>): Promise<{ head: Buffer; rest: Buffer }> {
  let bytes = Buffer.alloc(0);
  while (bytes.length < HEADER_BYTES) {
    const next = await source.next();
    if (next.done) break;
    bytes = Buffer.concat([bytes, next.value]);
  }
  return { head: bytes.subarray(0, HEADER_BYTES), rest: bytes.subarray(HEADER_BYTES) };
}

async function* remaining(first: Buffer, source: AsyncIterator<Uint8Array>): AsyncGenerator<Buffer, void> {
  if (first.length > 0) yield first;
  for (let next = await source.next(); !next.done; next = await source.next()) yield Buffer.from(next.value);
}

/** Pieces of one size, the last of which may be shorter. None for no content. */
async function* piecesOf(
  content: AsyncIterable<Uint8Array>,
  size: number,
): AsyncGenerator<Buffer<ArrayBufferLike>, void> {
  let piece = Buffer.allocUnsafe(size);
  let filled = 0;
  for await (const chunk of content) {
    for (let at = 0; at < chunk.length;) {
      const part = chunk.subarray(at, at + size - filled);
      piece.set(part, filled);
      filled += part.length;
      at += part.length;
      if (filled < size) continue;
      yield piece;
      piece = Buffer.allocUnsafe(size);
      filled = 0;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
}

function damaged(name: string, why: string): CayError {
  return new CayError('failed_precondition', `Object "${name}" of the store cannot be read: ${why}`, {
    details: { damaged: true },
  });
}

function otherKey(name: string, by: string, own: string): CayError {
  return new CayError(
    'failed_precondition',
    `Object "${name}" of the store is sealed with key ${by}, and this is key ${own}`,
    {
      details: { keyId: by },
      hint: 'servers that share a store have the same key: give it in CAY_SECRET_KEY or by CAY_SECRET_KEY_COMMAND',
    },
  );
}
