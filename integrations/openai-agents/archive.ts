/** Workspaces as bytes that the framework keeps: a tar, or the name of a snapshot. */
import {
  resolveSandboxArchiveLimits,
  SandboxArchiveError,
  type SandboxArchiveLimits,
  type WorkspaceArchiveData,
} from '@openai/agents-core/sandbox';

const SNAPSHOT = 'cay-snapshot:';
const BLOCK = 512;
/** Headers that describe the next entry. */
const DESCRIBING = 'xgLK';

export const snapshotReference = (id: string) => new TextEncoder().encode(SNAPSHOT + id);

export function snapshotOf(bytes: Uint8Array): string | undefined {
  if (bytes.length > 128) return undefined;
  const text = new TextDecoder().decode(bytes);
  return text.startsWith(SNAPSHOT) ? text.slice(SNAPSHOT.length) : undefined;
}

export function bytesOfArchive(data: WorkspaceArchiveData): Uint8Array {
  return typeof data === 'string' ? new TextEncoder().encode(data) : new Uint8Array(data);
}

/** Looks at the headers alone; what is in the archive is checked again where it is unpacked. */
export function checkArchive(bytes: Uint8Array, given: SandboxArchiveLimits | null | undefined): void {
  const limits = resolveSandboxArchiveLimits(given);
  if (!limits) return;
  const { maxInputBytes, maxExtractedBytes, maxMembers } = limits;
  const over = (what: string, most: number) =>
    new SandboxArchiveError(`The workspace archive has more than ${most} ${what}`, { provider: 'cay' });
  if (maxInputBytes !== null && bytes.length > maxInputBytes) throw over('bytes', maxInputBytes);
  let [members, extracted] = [0, 0];
  for (let at = 0; at + BLOCK <= bytes.length;) {
    const header = bytes.subarray(at, at + BLOCK);
    if (header.every((byte) => byte === 0)) break;
    const size = sizeOf(header);
    if (!DESCRIBING.includes(String.fromCharCode(header[156]!))) {
      members++;
      extracted += size;
    }
    if (maxMembers !== null && members > maxMembers) throw over('members', maxMembers);
    if (maxExtractedBytes !== null && extracted > maxExtractedBytes)
      throw over('bytes when it is unpacked', maxExtractedBytes);
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
}

function sizeOf(header: Uint8Array): number {
  const field = header.subarray(124, 136);
  // A size beyond eight octal digits is in binary.
  if (field[0]! & 0x80) return field.subarray(4).reduce((value, byte) => value * 256 + byte, 0);
  const size = Number.parseInt(new TextDecoder().decode(field), 8);
  return Number.isNaN(size) ? 0 : size;
}
