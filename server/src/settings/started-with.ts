/**
 * What a server in the background is started with, so that it has the settings that this process was given.
 */
import { resolve } from 'node:path';
import { SETTINGS } from '../settings.ts';
import type { Environment, Resolved } from './resolve-settings.ts';

export interface StartedWith {
  args: string[];
  env: Environment;
}

/**
 * Flags are given again, and variables are inherited. Secrets are variables even if they were flags:
 * everybody on the machine may read the arguments of a process. Paths are made absolute, because the server
 * runs in another directory.
 */
export function startedWith({ given }: Resolved, env: Environment): StartedWith {
  const args: string[] = [];
  const secrets: Record<string, string> = {};
  for (const { name, long, env: variable, secret, path, value } of SETTINGS) {
    const found = given.get(name);
    if (!found) continue;
    if (secret) secrets[variable!] = found.texts.at(-1)!;
    else if (long !== undefined && (found.isFlag || path)) {
      if (value === undefined) args.push(found.texts[0] === '1' ? long : long.replace(/^--/, '--no-'));
      else for (const text of found.texts) args.push(`${long}=${path ? resolve(text) : text}`);
    }
  }
  return { args, env: { ...env, ...secrets } };
}

/** The variables that no child of the server may inherit. */
export function secretVariables(): string[] {
  return SETTINGS.flatMap(({ secret, env }) => (secret && env !== undefined ? [env] : []));
}
