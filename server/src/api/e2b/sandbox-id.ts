import { CayError, isId, type SandboxId } from '@cay/sdk/protocol';

/** E2B's ids become part of a host name, where "_" may not stand: ours without their prefix. */
export function toE2bId(id: SandboxId): string {
  return id.slice('sbx_'.length);
}

/** Takes our own form too, and E2B's old one, which has a client's id behind a dash. */
export function parseE2bId(text: string): SandboxId | undefined {
  const bare = /^(?:sbx_)?([a-z0-9]+)(?:-[A-Za-z0-9]{1,40})?$/.exec(text)?.[1];
  const id = `sbx_${bare ?? ''}`;
  return isId('sbx', id) ? (id as SandboxId) : undefined;
}

/** Rejects `not_found`, as for a sandbox that does not exist: E2B's clients ask for that. */
export function requireE2bId(text: string): SandboxId {
  const id = parseE2bId(text);
  if (id) return id;
  throw new CayError('not_found', `Sandbox "${text.slice(0, 80)}" does not exist`);
}
