/** The accounts of an image, which have to name the user that every sandbox has. */
import { USER } from '../sandbox-user.ts';

/** The file with the user added, or `undefined` if it has one of that name. */
export function withUser(passwd: string, options: { shell: string }): string | undefined {
  if (names(passwd).has(USER.name)) return undefined;
  const text = passwd.trim() === '' ? 'root:x:0:0:root:/root:' + options.shell + '\n' : passwd;
  return `${closed(text)}${USER.name}:x:${USER.uid}:${USER.gid}::${USER.home}:${options.shell}\n`;
}

export function withGroup(group: string): string | undefined {
  if (names(group).has(USER.name)) return undefined;
  const text = group.trim() === '' ? 'root:x:0:\n' : group;
  return `${closed(text)}${USER.name}:x:${USER.gid}:\n`;
}

function names(file: string): Set<string> {
  return new Set(file.split('\n').map((line) => line.split(':', 1)[0] ?? ''));
}

function closed(file: string): string {
  return file.endsWith('\n') ? file : `${file}\n`;
}
