/**
 * Prepares an image: one layer on top of it holds the guest, the user and its home. That is done here and not
 * in each container, because Docker cannot write into a container whose root is read-only, and so that all
 * sandboxes share the guest's pages.
 */
import { withGroup, withUser } from '../../host/images/accounts.ts';
import { USER } from '../support/sandbox-user.ts';
import { requireAccountFiles } from './account-files.ts';
import { GUEST_PATH, LABELS, SOCKET_DIRECTORY } from './container-config.ts';
import type { DockerClient } from './docker-client.ts';
import type { GuestFile } from './guest-file.ts';
import { packTar, unpackTar, type TarEntry } from './tar-archive.ts';

export interface PreparedImage {
  id: string;
  sizeBytes: number;
}

export interface PreparedAs {
  tag: string;
  labels?: Record<string, string>;
  /** Puts further files into a container of the image first. */
  fill?(container: string): Promise<void>;
}

const MAX_ACCOUNTS_BYTES = 1024 * 1024;

export async function prepareImage(
  { client, installation }: { client: DockerClient; installation: string },
  { bytes, hash }: GuestFile,
  image: { Id: string; Size: number },
  { tag, labels = {}, fill }: PreparedAs,
): Promise<PreparedImage> {
  const action = `prepare image "${image.Id}"`;
  const { Id: container } = (await client.json('POST', '/containers/create', {
    action,
    body: {
      Image: image.Id,
      Entrypoint: [GUEST_PATH],
      User: '0:0',
      NetworkDisabled: true,
      Labels: { [LABELS.scratch]: installation },
      HostConfig: { NetworkMode: 'none', LogConfig: { Type: 'none' } },
    },
  })) as { Id: string };
  try {
    await fill?.(container);
    await requireAccountFiles(client, container, { action });
    const entries = await entriesFor(client, container, bytes);
    await client.json('PUT', `/containers/${container}/archive`, {
      action,
      query: { path: '/' },
      body: packTar(entries),
    });
    const made = (await client.json('POST', '/commit', {
      action,
      query: { container, repo: `cay-${installation}`, tag, pause: false },
      body: {
        Labels: {
          [LABELS.installation]: installation,
          [LABELS.guest]: hash,
          [LABELS.scratch]: '',
          ...labels,
        },
      },
    })) as { Id: string };
    return { id: made.Id, sizeBytes: image.Size + bytes.length };
  } finally {
    await client.json('DELETE', `/containers/${container}`, {
      action,
      query: { force: true, v: true },
      allow: [404, 409],
    });
  }
}

/** The files of the layer: the guest, and accounts unless the image keeps its own elsewhere. */
async function entriesFor(client: DockerClient, container: string, guest: Buffer): Promise<TarEntry[]> {
  const [passwd, group] = await Promise.all([
    accounts(client, container, '/etc/passwd'),
    accounts(client, container, '/etc/group'),
  ]);
  const newPasswd = passwd === undefined ? undefined : withUser(passwd, { shell: '/bin/sh' });
  const newGroup = group === undefined ? undefined : withGroup(group);
  const directory = (path: string, mode: number, id = 0): TarEntry => ({
    path,
    type: 'directory',
    mode,
    uid: id,
    gid: id,
    data: Buffer.alloc(0),
  });
  const file = (path: string, mode: number, data: Buffer): TarEntry => ({
    path,
    type: 'file',
    mode,
    uid: 0,
    gid: 0,
    data,
  });
  return [
    directory('.cay', 0o755),
    file(GUEST_PATH.slice(1), 0o755, guest),
    directory(SOCKET_DIRECTORY.slice(1), 0o700),
    ...(newPasswd === undefined
      ? []
      : [file('etc/passwd', 0o644, Buffer.from(newPasswd)), directory(USER.home.slice(1), 0o755, USER.uid)]),
    ...(newGroup === undefined ? [] : [file('etc/group', 0o644, Buffer.from(newGroup))]),
  ];
}

/** Undefined for a link: it leads to what only the image's makers know, and they have to bring the user. */
async function accounts(client: DockerClient, container: string, path: string): Promise<string | undefined> {
  const archive = await client.bytes(`/containers/${container}/archive`, {
    action: `read "${path}" of an image`,
    query: { path },
    maxBytes: MAX_ACCOUNTS_BYTES,
  });
  if (!archive) return '';
  const [entry] = unpackTar(archive);
  return entry?.type === 'file' ? entry.data.toString('utf8') : undefined;
}
