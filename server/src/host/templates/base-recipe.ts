/** What the template `base` is made of, as data. */
import { NAME_SERVER } from '../../guest/name-server.ts';

export const TOP_LEVEL = ['usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'] as const;

/** Path and mode, parents first. */
export const DIRECTORIES: readonly (readonly [string, number])[] = [
  ['dev', 0o755],
  ['etc', 0o755],
  ['etc/pam.d', 0o755],
  ['etc/profile.d', 0o755],
  ['home', 0o755],
  ['home/user', 0o755],
  ['media', 0o755],
  ['mnt', 0o755],
  ['opt', 0o755],
  ['proc', 0o555],
  ['root', 0o700],
  ['run', 0o755],
  ['srv', 0o755],
  ['sys', 0o555],
  ['tmp', 0o1777],
  ['var', 0o755],
  ['var/cache', 0o755],
  ['var/lib', 0o755],
  ['var/log', 0o755],
  ['var/spool', 0o755],
  ['var/tmp', 0o1777],
];

export const LINKS: readonly (readonly [string, string])[] = [
  ['var/run', '/run'],
  ['var/lock', '/run/lock'],
  ['etc/mtab', '/proc/self/mounts'],
];

const lines = (...text: string[]) => `${text.join('\n')}\n`;

/** Root may become anybody, and nobody else may: no user has a password. */
const FROM_ROOT = lines(
  'auth sufficient pam_rootok.so',
  'auth required pam_deny.so',
  'account sufficient pam_rootok.so',
  'account required pam_deny.so',
  'session required pam_permit.so',
);

export const ETC_FILES: Readonly<Record<string, string>> = {
  passwd: lines(
    'root:x:0:0:root:/root:/bin/bash',
    'daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin',
    'bin:x:2:2:bin:/bin:/usr/sbin/nologin',
    'sys:x:3:3:sys:/dev:/usr/sbin/nologin',
    'man:x:6:12:man:/var/cache/man:/usr/sbin/nologin',
    'mail:x:8:8:mail:/var/mail:/usr/sbin/nologin',
    'www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin',
    '_apt:x:42:65534::/nonexistent:/usr/sbin/nologin',
    'user:x:1000:1000:user:/home/user:/bin/bash',
    'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin',
  ),
  group: lines(
    'root:x:0:',
    'daemon:x:1:',
    'bin:x:2:',
    'sys:x:3:',
    'adm:x:4:',
    'tty:x:5:',
    'disk:x:6:',
    'mail:x:8:',
    'man:x:12:',
    'utmp:x:43:',
    'www-data:x:33:',
    'shadow:x:42:',
    'staff:x:50:',
    'users:x:100:',
    'user:x:1000:',
    'nogroup:x:65534:',
  ),
  'pam.d/other': lines(
    ...['auth', 'account', 'password', 'session'].map((type) => `${type} required pam_deny.so`),
  ),
  'pam.d/runuser': FROM_ROOT,
  'pam.d/runuser-l': FROM_ROOT,
  'pam.d/su': FROM_ROOT,
  'pam.d/su-l': FROM_ROOT,
  hostname: lines('localhost'),
  hosts: lines('127.0.0.1\tlocalhost', '::1\tlocalhost ip6-localhost ip6-loopback'),
  'host.conf': lines('multi on'),
  'nsswitch.conf': lines(
    'passwd: files',
    'group: files',
    'shadow: files',
    'hosts: files dns',
    'protocols: files',
    'services: files',
  ),
  'resolv.conf': lines(`nameserver ${NAME_SERVER}`),
  shells: lines('/bin/sh', '/bin/bash'),
  // Debian's Python refuses packages beside its own. `/usr` is read-only here, so pip installs for the user.
  'pip.conf': lines('[global]', 'break-system-packages = true'),
  environment: '',
  fstab: '',
  profile: lines(
    'export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"',
    'if [ -n "$BASH_VERSION" ] && [ -n "$PS1" ] && [ -f /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi',
    'for part in /etc/profile.d/*.sh; do if [ -r "$part" ]; then . "$part"; fi; done; unset part',
  ),
  'bash.bashrc': lines('[ -z "$PS1" ] && return', 'shopt -s checkwinsize', "PS1='\\u@\\h:\\w\\$ '"),
};
