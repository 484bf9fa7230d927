import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { CayError } from '@cay/sdk/protocol';

/** The guest as it is put into images. */
export interface GuestFile {
  bytes: Buffer;
  /** Another guest, or another layout of prepared images, has another. */
  hash: string;
  /** As Docker calls it; undefined for a file that is not of a known one. */
  architecture: string | undefined;
}

/** Raised when what is put into an image changes, so that older prepared images are not used again. */
const LAYOUT = 2;
const MACHINES: Record<number, string> = { 62: 'amd64', 183: 'arm64' };

/** Reads the guest at `path` once. A read that failed is tried again at the next call. */
export function guestFile(path: string): () => Promise<GuestFile> {
  let known: Promise<GuestFile> | undefined;

  async function read(): Promise<GuestFile> {
    try {
      const bytes = await readFile(path);
      const hash = createHash('sha256').update(`${LAYOUT}\n`).update(bytes).digest('hex').slice(0, 16);
      return { bytes, hash, architecture: bytes.length > 20 ? MACHINES[bytes.readUInt16LE(18)] : undefined };
    } catch (cause) {
      known = undefined;
      throw new CayError('failed_precondition', `Cannot read the guest at "${path}"`, {
        cause,
        hint: 'build it with "npm run guest"',
      });
    }
  }

  return () => (known ??= read());
}
