import type { SealedBox } from '../../lib/sealed-box.ts';
import { type Authority, type AuthorityMaterial, newAuthority, openAuthority } from './authority.ts';

/** Where the sealed authority is kept. */
export interface AuthorityStore {
  read(): Promise<string | undefined>;
  /** Keeps it unless there is one already, and answers which is kept: two servers may start at once. */
  write(sealed: string): Promise<string>;
}

const CONTEXT = 'network authority';

/** The authority of this installation. It is made at the first call of all, and its key is stored sealed. */
export async function storedAuthority(store: AuthorityStore, box: SealedBox): Promise<Authority> {
  const known =
    (await store.read()) ?? (await store.write(box.seal(JSON.stringify(newAuthority()), CONTEXT)));
  return openAuthority(JSON.parse(box.open(known, CONTEXT).toString()) as AuthorityMaterial);
}
