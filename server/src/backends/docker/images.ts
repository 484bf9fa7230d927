/**
 * The images that sandboxes are made from. Each image that is asked for is *prepared* once: one
 * layer on top of it holds the guest, the user and its home. That is done here and not in each
 * container, because Docker cannot write into a container whose root is read-only, and so
 * that all sandboxes share the guest's pages. Prepared images are a cache: removing one that is
 * not in use costs the time to make it again.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { allowsImage, requireImage } from '../../policy/allow-image.ts';
import type { Policy } from '../../policy/policy.ts';
import { USER } from '../support/sandbox-user.ts';
import { withGroup, withUser } from '../../host/images/accounts.ts';
import { requireAccountFiles } from './account-files.ts';
import { GUEST_PATH, LABELS, SOCKET_DIRECTORY } from './container-config.ts';
import type { DockerClient } from './docker-client.ts';
import { packTar, unpackTar, type TarEntry } from './tar-archive.ts';

export interface Images {
  /** Rejects `permission_denied` unless the operator allows the image. */
  requireAllowed(template: string): void;
  /** Rejects `not_found` unless the image is here or in its registry. Fetches nothing. */
  check(template: string, options?: { signal?: AbortSignal }): Promise<void>;
  /** The prepared image, made and pulled as needed. */
  prepare(template: string, options?: { signal?: AbortSignal }): Promise<PreparedImage>;
  /**
   * A prepared image of another image, with this tag and these labels. `fill` puts further files into a container
   * of it first.
   */
  prepareAs(
    image: { Id: string; Size: number },
    as: { tag: string; labels: Record<string, string>; fill?(container: string): Promise<void> },
  ): Promise<PreparedImage>;
  /** Templates that need not be pulled. */
  list(options?: { signal?: AbortSignal }): Promise<string[]>;
}

export interface PreparedImage {
  id: string;
  sizeBytes: number;
}

export interface ImagesOptions {
  installation: string;
  baseImage: string;
  policy: Pick<Policy, 'images'>;
  /** The guest's file on this machine. */
  guestPath: string;
}

/** Raised when what is put into an image changes, so that older prepared images are not used again. */
const LAYOUT = 2;
const MAX_ACCOUNTS_BYTES = 1024 * 1024;
const PULL_TIMEOUT_MS = 30 * 60_000;
/** `[registry[:port]/]name[/name…][:tag][@digest]`, as Docker has it. */
const REFERENCE =
  /^(?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?)(?::[0-9]{1,5})?\/)?[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$/;
const MACHINES: Record<number, string> = { 62: 'amd64', 183: 'arm64' };

interface ImageInspect {
  Id: string;
  Architecture: string;
  Os: string;
  Size: number;
}

export function dockerImages(client: DockerClient, options: ImagesOptions): Images {
  const making = new Map<string, Promise<PreparedImage>>();
  let guest: Promise<{ bytes: Buffer; hash: string; architecture: string | undefined }> | undefined;
  let swept: Promise<void> | undefined;

  /** What the template is called on the engine, if it may be had; what "base" is the operator has said. */
  function referenceOf(template: string): string {
    const reference = template === 'base' ? options.baseImage : template;
    if (!REFERENCE.test(reference)) {
      throw new CayError('invalid_argument', `Template "${template}" is not the name of an image`, {
        hint: 'Use "base", or a name such as "python:3.13-slim"',
      });
    }
    // Without a tag Docker would fetch all that the registry has.
    const tagged = /[:@][^/]*$/.test(reference) ? reference : `${reference}:latest`;
    if (template !== 'base') requireImage(options.policy, tagged);
    return tagged;
  }

  async function inspect(reference: string, signal?: AbortSignal): Promise<ImageInspect | undefined> {
    return (await client.json('GET', `/images/${reference}/json`, {
      action: `look at image "${reference}"`,
      signal,
      allow: [404],
    })) as ImageInspect | undefined;
  }

  function unknown(template: string, cause: unknown): CayError {
    const why = isCayError(cause) ? `: ${cause.message}` : '';
    return new CayError(
      'not_found',
      `Template "${template}" is unknown: Docker has no such image, and no registry gave it${why}`,
      {
        cause,
        details: { what: 'template' },
        hint: `Try "docker pull" on the engine's machine`,
      },
    );
  }

  async function pull(template: string, reference: string, signal?: AbortSignal): Promise<ImageInspect> {
    const action = `pull image "${reference}"`;
    const timeout = AbortSignal.timeout(PULL_TIMEOUT_MS);
    try {
      const call = {
        action,
        query: { fromImage: reference },
        signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      };
      for await (const progress of client.lines('POST', '/images/create', call)) {
        const { error } = progress as { error?: string };
        if (error !== undefined)
          throw new CayError('not_found', `Cannot ${action}: Docker says "${error.slice(0, 1000)}"`);
      }
    } catch (error) {
      if (isCayError(error) && ['cancelled', 'deadline_exceeded', 'resource_exhausted'].includes(error.code))
        throw error;
      throw unknown(template, error);
    }
    const image = await inspect(reference, signal);
    if (!image) throw unknown(template, undefined);
    return image;
  }

  async function readGuest() {
    try {
      const bytes = await readFile(options.guestPath);
      const hash = createHash('sha256').update(`${LAYOUT}\n`).update(bytes).digest('hex').slice(0, 16);
      return { bytes, hash, architecture: bytes.length > 20 ? MACHINES[bytes.readUInt16LE(18)] : undefined };
    } catch (cause) {
      guest = undefined;
      throw new CayError('failed_precondition', `Cannot read the guest at "${options.guestPath}"`, {
        cause,
        hint: 'Build it with "npm run guest"',
      });
    }
  }

  /**
   * Removes what an earlier run left: containers for preparing, and images with another guest that nothing
   * uses.
   */
  async function sweep(hash: string): Promise<void> {
    const action = 'remove what preparing images left behind';
    const scratch = (await client.json('GET', '/containers/json', {
      action,
      query: { all: true, filters: JSON.stringify({ label: [`${LABELS.scratch}=${options.installation}`] }) },
    })) as { Id: string }[];
    for (const { Id } of scratch)
      await client.json('DELETE', `/containers/${Id}`, {
        action,
        query: { force: true, v: true },
        allow: [404, 409],
      });
    const images = (await client.json('GET', '/images/json', {
      action,
      query: {
        filters: JSON.stringify({ label: [`${LABELS.installation}=${options.installation}`, LABELS.guest] }),
      },
    })) as { Id: string; Labels: Record<string, string> | null }[];
    for (const { Id, Labels } of images) {
      // The image of a snapshot has the guest of its time.
      if (Labels?.[LABELS.snapshot]) continue;
      if (Labels?.[LABELS.guest] !== hash)
        await client.json('DELETE', `/images/${Id}`, { action, allow: [404, 409] });
    }
  }

  async function accounts(container: string, path: string): Promise<string | undefined> {
    const archive = await client.bytes(`/containers/${container}/archive`, {
      action: `read "${path}" of an image`,
      query: { path },
      maxBytes: MAX_ACCOUNTS_BYTES,
    });
    if (!archive) return '';
    const [entry] = unpackTar(archive);
    // A link leads to what only the image's makers know; such an image has to bring its own user.
    return entry?.type === 'file' ? entry.data.toString('utf8') : undefined;
  }

  async function make(
    image: Pick<ImageInspect, 'Id' | 'Size'>,
    { tag, labels = {}, fill }: { tag: string; labels?: object; fill?(container: string): Promise<void> },
  ): Promise<PreparedImage> {
    const { bytes, hash } = await (guest ??= readGuest());
    const action = `prepare image "${image.Id}"`;
    const { Id: container } = (await client.json('POST', '/containers/create', {
      action,
      body: {
        Image: image.Id,
        Entrypoint: [GUEST_PATH],
        User: '0:0',
        NetworkDisabled: true,
        Labels: { [LABELS.scratch]: options.installation },
        HostConfig: { NetworkMode: 'none', LogConfig: { Type: 'none' } },
      },
    })) as { Id: string };
    try {
      await fill?.(container);
      await requireAccountFiles(client, container, { action });
      const [passwd, group] = await Promise.all([
        accounts(container, '/etc/passwd'),
        accounts(container, '/etc/group'),
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
      const entries = [
        directory('.cay', 0o755),
        file(GUEST_PATH.slice(1), 0o755, bytes),
        directory(SOCKET_DIRECTORY.slice(1), 0o700),
        ...(newPasswd === undefined
          ? []
          : [
              file('etc/passwd', 0o644, Buffer.from(newPasswd)),
              directory(USER.home.slice(1), 0o755, USER.uid),
            ]),
        ...(newGroup === undefined ? [] : [file('etc/group', 0o644, Buffer.from(newGroup))]),
      ];
      await client.json('PUT', `/containers/${container}/archive`, {
        action,
        query: { path: '/' },
        body: packTar(entries),
      });
      const made = (await client.json('POST', '/commit', {
        action,
        query: { container, repo: `cay-${options.installation}`, tag, pause: false },
        body: {
          Labels: {
            [LABELS.installation]: options.installation,
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

  return {
    requireAllowed: (template) => void referenceOf(template),

    async check(template, { signal } = {}) {
      const reference = referenceOf(template);
      if (await inspect(reference, signal)) return;
      try {
        await client.json('GET', `/distribution/${reference}/json`, {
          action: `look for image "${reference}" in its registry`,
          signal,
          timeoutMs: 30_000,
        });
      } catch (error) {
        if (isCayError(error, 'cancelled')) throw error;
        throw unknown(template, error);
      }
    },

    async prepare(template, { signal } = {}) {
      const reference = referenceOf(template);
      const image = (await inspect(reference, signal)) ?? (await pull(template, reference, signal));
      const { hash, architecture } = await (guest ??= readGuest());
      if (
        image.Os !== 'linux' ||
        (architecture && image.Architecture && image.Architecture !== architecture)
      ) {
        throw new CayError(
          'unsupported',
          `Template "${template}" is for ${image.Os}/${image.Architecture}, and the guest for linux/${architecture}`,
        );
      }
      await (swept ??= sweep(hash).catch((error: unknown) => {
        swept = undefined;
        throw error;
      }));
      const tag = createHash('sha256').update(`${hash}\n${image.Id}`).digest('hex').slice(0, 32);
      const ready = await inspect(`cay-${options.installation}:${tag}`, signal);
      if (ready) return { id: ready.Id, sizeBytes: ready.Size };
      let one = making.get(tag);
      if (!one) making.set(tag, (one = make(image, { tag }).finally(() => making.delete(tag))));
      return one;
    },

    prepareAs: make,

    async list({ signal } = {}) {
      const images = (await client.json('GET', '/images/json', { action: 'list images', signal })) as {
        RepoTags: string[] | null;
        Labels: Record<string, string> | null;
      }[];
      const tags = images
        .filter(({ Labels }) => !Labels?.[LABELS.guest] && !Labels?.[LABELS.snapshot])
        .flatMap(({ RepoTags }) => RepoTags ?? []);
      const allowed = tags.filter((tag) => tag !== '<none>:<none>' && allowsImage(options.policy, tag));
      return ['base', ...allowed.sort()].slice(0, 256);
    },
  };
}
