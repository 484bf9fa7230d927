/** The user that every sandbox has, as an image's `/etc/passwd` and `/etc/group` have to name it. */
export const USER = { name: 'user', uid: 1000, gid: 1000, home: '/home/user' };

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
