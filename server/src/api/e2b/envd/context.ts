import { posix } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { Principal } from '../../../control/tenants/principal.ts';
import type { Control, EnteredSandbox } from '../../../control/control.ts';
import type { Files, Guest } from '../../../guest/guest.ts';
import type { Share } from '../../http/budgets.ts';
import type { Account, Accounts } from './accounts.ts';

/** One request to a sandbox's own address, from somebody who may make it. */
export interface EnvdCaller {
  readonly control: Control;
  readonly principal: Principal;
  readonly row: EnteredSandbox;
  /** As whom, if the caller says. */
  readonly user: string | undefined;
  readonly headers: NodeJS.Dict<string | string[]>;
  /** What the request has taken of the project's budgets. */
  readonly share: Share | undefined;
  /** Aborts when the caller goes away. */
  readonly signal: AbortSignal;
  accounts(): Promise<Accounts>;
}

/** The same, inside the sandbox. */
export interface EnvdContext extends EnvdCaller {
  readonly guest: Guest;
}

/** Files of the whole sandbox, to look at: E2B's file verbs are not refused for want of rights. */
export function filesOf(context: EnvdContext): Pick<Files, 'stat' | 'list' | 'read' | 'watch' | 'xattrs'> {
  return context.guest.files('root');
}

/** The same, to change. What is made belongs to the user that the request is for. */
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
  /** With those that it is in. */
  mkdir(path: string): Promise<boolean>;
  move(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  setXattrs(path: string, set: Record<string, Uint8Array | null>): Promise<unknown>;
}

/** The user that the request is for. Rejects `unauthenticated` for one that the sandbox does not have. */
export async function accountOf(context: EnvdCaller): Promise<Account> {
  const name = context.user ?? context.row.spec.user;
  const account = (await context.accounts()).byName(name);
  if (!account) throw invalidUser(name);
  return account;
}

export function invalidUser(name: string): CayError {
  return new CayError('unauthenticated', `invalid username: '${name.slice(0, 80)}'`);
}

/** Relative paths are below the user's home, which `~` stands for. Rejects `invalid_argument`. */
export async function resolvePath(context: EnvdCaller, path: string): Promise<string> {
  if (path.includes('\0')) throw new CayError('invalid_argument', 'A path has no NUL character in it');
  if (path.startsWith('/')) return posix.normalize(path);
  if (/^~[^/]/.test(path))
    throw new CayError(
      'invalid_argument',
      `Cannot resolve "${path.slice(0, 80)}": only one's own home has a short name`,
    );
  const { home } = await accountOf(context);
  return posix.join(home, path.startsWith('~') ? path.slice(1) : path);
}
