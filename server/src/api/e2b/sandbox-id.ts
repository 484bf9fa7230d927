import { CayError, isId, type SandboxId } from '@cay/sdk/protocol';

/** E2B's ids are part of host names, which have no "_": our ids without their prefix. */
export function toE2bId(id: SandboxId): string {
  return id.slice('sbx_'.length);
}

/** Also parses our own form, and E2B's old form with a client id behind a dash. */
export function parseE2bId(text: string): SandboxId | undefined {
  const bare = /^(?:sbx_)?([a-z0-9]+)(?:-[A-Za-z0-9]{1,40})?$/.exec(text)?.[1];
  const id = `sbx_${bare ?? ''}`;
  return isId('sbx', id) ? (id as SandboxId) : undefined;
}

/** Throws `not_found` for text that is not an id, as E2B clients expect. */
export function requireE2bId(text: string): SandboxId {
  const id = parseE2bId(text);
  if (id) return id;
  throw new CayError('not_found', `Sandbox "${text.slice(0, 80)}" does not exist`);
}
