import { posix } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { Principal } from '../../../control/tenants/principal.ts';
import type { Control, EnteredSandbox } from '../../../control/control.ts';
import type { Files, Guest } from '../../../guest/guest.ts';
import type { Share } from '../../http/budgets.ts';
import type { Account, Accounts } from './accounts.ts';

/** One authorised request to a sandbox's own address. */
export interface EnvdCaller {
  readonly control: Control;
  readonly principal: Principal;
  readonly row: EnteredSandbox;
  /** The user that the caller names. */
  readonly user: string | undefined;
  readonly headers: NodeJS.Dict<string | string[]>;
  /** Its share of the project's budgets. */
  readonly share: Share | undefined;
  /** Aborts when the caller disconnects. */
  readonly signal: AbortSignal;
  accounts(): Promise<Accounts>;
}

/** A request whose sandbox runs. */
export interface EnvdContext extends EnvdCaller {
  readonly guest: Guest;
}

/** Read access to all files as root: E2B's file calls ignore permissions. */
export function filesOf(context: EnvdContext): Pick<Files, 'stat' | 'list' | 'read' | 'watch' | 'xattrs'> {
  return context.guest.files('root');
}

/** Write access to all files. What is created belongs to the user of the request. Changes are audited. */
export async function changesOf(context: EnvdContext): Promise<Changes> {
  const { control, principal, row } = context;
  const { files } = await control.files(principal, row.id, (await accountOf(context)).name);
  return {
    write: (path, data, options) => files.write(path, data, { ...options, reach: true }),
    mkdir: (path) => files.mkdir(path, { reach: true }),
    move: (from, to) => files.move(from, to, { overwrite: true, reach: true }),
    remove: (path) => files.remove(path, { recursive: true, reach: true }),
    setXattrs: (path, set) => files.xattrs(path, set, { reach: true }),
  };
}

export interface Changes {
  write: Files['write'];
  /** Creates missing parents. */
  mkdir(path: string): Promise<boolean>;
  move(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  setXattrs(path: string, set: Record<string, Uint8Array | null>): Promise<unknown>;
}

/** The user of the request. Rejects `unauthenticated` for a user that the sandbox does not have. */
export async function accountOf(context: EnvdCaller): Promise<Account> {
  const name = context.user ?? context.row.spec.user;
  const account = (await context.accounts()).byName(name);
  if (!account) throw invalidUser(name);
  return account;
}

export function invalidUser(name: string): CayError {
  return new CayError('unauthenticated', `invalid username: '${name.slice(0, 80)}'`);
}

/** Resolves a path: relative paths and `~` are below the home of the user. Rejects `invalid_argument`. */
export async function resolvePath(context: EnvdCaller, path: string): Promise<string> {
  if (path.includes('\0')) throw new CayError('invalid_argument', 'A path has no NUL character in it');
  if (path.startsWith('/')) return posix.normalize(path);
  if (/^~[^/]/.test(path))
    throw new CayError(
      'invalid_argument',
      `Cannot resolve "${path.slice(0, 80)}": "~" stands for the user's own home alone`,
    );
  const { home } = await accountOf(context);
  return posix.join(home, path.startsWith('~') ? path.slice(1) : path);
}
