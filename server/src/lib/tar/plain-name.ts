import { trimEnd } from '../trim-end.ts';

/**
 * The name of an entry without `./` and slashes before it and slashes behind it; empty for the root. Names
 * are hostile and may be long: each character is looked at once.
 */
export function plainName(name: string): string {
  const inner = trimEnd(withoutRoot(name), '/');
  return inner === '.' ? '' : inner;
}

/** Without `./` and slashes before it. */
export function withoutRoot(name: string): string {
  let at = 0;
  for (;;) {
    if (name[at] === '/') at++;
    else if (name[at] === '.' && name[at + 1] === '/') at += 2;
    else return name.slice(at);
  }
}
