/** E2B's filesystem service. */
import { posix } from 'node:path';
import { CayError, type FileInfo } from '@cay/sdk/protocol';
import { z } from 'zod';
import { collectFiles } from '../../rest/collect-files.ts';
import { changesOf, filesOf, resolvePath, type EnvdContext } from './context.ts';
import { absent, entryInfo, statEntry, type EntryInfo } from './entry-info.ts';
import { deadlineMs, type StreamOut } from './stream-out.ts';
import type { Uploads } from './uploads.ts';
import { watchEvents, type WatchEvent } from './watch-events.ts';
import { openWatchers } from './watchers.ts';

export interface Filesystem {
  stat(context: EnvdContext, message: unknown): Promise<unknown>;
  makeDir(context: EnvdContext, message: unknown): Promise<unknown>;
  move(context: EnvdContext, message: unknown): Promise<unknown>;
  listDir(context: EnvdContext, message: unknown): Promise<unknown>;
  remove(context: EnvdContext, message: unknown): Promise<unknown>;
  watchDir(context: EnvdContext, message: unknown, out: () => StreamOut): Promise<void>;
  /** A watch that is polled, for clients that cannot read a stream. */
  createWatcher(context: EnvdContext, message: unknown): Promise<unknown>;
  getWatcherEvents(context: EnvdContext, message: unknown): Promise<unknown>;
  removeWatcher(context: EnvdContext, message: unknown): Promise<unknown>;
}

const Path = z.string().max(4096).default('');
const PathRequest = z.looseObject({ path: Path });
const MoveRequest = z.looseObject({ source: Path, destination: Path });
const ListRequest = z.looseObject({ path: Path, depth: z.int().min(0).max(1000).default(1) });
const WatchRequest = z.looseObject({
  path: Path,
  recursive: z.boolean().default(false),
  includeEntry: z.boolean().default(false),
});
const WatcherRequest = z.looseObject({ watcherId: z.string().max(100) });
const MOST_ENTRIES = 100_000;
const MOST_BYTES = 16 * 1024 * 1024;
const AT_ONCE = 32;

export function filesystem(uploads: Uploads): Filesystem {
  const watchers = openWatchers();

  /** Starts a watch. Events include the entry if the client asks for that. */
  async function watch(context: EnvdContext, message: unknown, signal: AbortSignal) {
    const request = WatchRequest.parse(message);
    const path = await resolvePath(context, request.path);
    await requireDirectory(context, path);
    const source = await filesOf(context).watch(path, { recursive: request.recursive, signal });
    const events = watchEvents(source, path, (written) => uploads.of(context.row.id, written));
    return withEntries(context, events, request.includeEntry);
  }

  return {
    async stat(context, message) {
      const path = await resolvePath(context, PathRequest.parse(message).path);
      return { entry: await statEntry(context, path) };
    },

    async makeDir(context, message) {
      const path = await resolvePath(context, PathRequest.parse(message).path);
      const info = await filesOf(context).stat(path, { follow: true }).catch(absent);
      if (info?.type === 'directory')
        throw new CayError('already_exists', `directory already exists: ${path}`);
      if (info)
        throw new CayError('invalid_argument', `path already exists but it is not a directory: ${path}`);
      await (await changesOf(context)).mkdir(path);
      return { entry: await statEntry(context, path) };
    },

    async move(context, message) {
      const request = MoveRequest.parse(message);
      const [from, to] = [
        await resolvePath(context, request.source),
        await resolvePath(context, request.destination),
      ];
      await filesOf(context).stat(from, { follow: false });
      const changes = await changesOf(context);
      await changes.mkdir(posix.dirname(to));
      await changes.move(from, to);
      return { entry: await statEntry(context, to) };
    },

    async listDir(context, message) {
      const request = ListRequest.parse(message);
      const path = await resolvePath(context, request.path);
      await requireDirectory(context, path);
      const listed = filesOf(context).list(path, { depth: request.depth || 1, signal: context.signal });
      const files: FileInfo[] = [];
      const { more } = await collectFiles(listed, {
        entries: MOST_ENTRIES,
        bytes: MOST_BYTES,
        share: context.share,
        owner: context.row.project,
        keep: (info) => files.push(info),
      });
      if (more) {
        throw new CayError(
          'resource_exhausted',
          `"${path}" has more below it than ${MOST_ENTRIES} entries or ${MOST_BYTES} bytes of names`,
          {
            hint: 'list it less deep, one directory after the other',
          },
        );
      }
      return { entries: await described(context, files) };
    },

    async remove(context, message) {
      const path = await resolvePath(context, PathRequest.parse(message).path);
      await (await changesOf(context)).remove(path).catch(absent);
      return {};
    },

    async watchDir(context, message, out) {
      const limit = deadlineMs(context.headers);
      const deadline = limit === undefined ? undefined : AbortSignal.timeout(limit);
      const events = await watch(
        context,
        message,
        AbortSignal.any([context.signal, ...(deadline ? [deadline] : [])]),
      );
      const stream = out();
      await stream.send({ start: {} });
      try {
        for await (const filesystem of events) await stream.send({ filesystem });
      } catch (error) {
        if (!deadline?.aborted) throw error;
      }
      if (deadline?.aborted)
        throw new CayError('deadline_exceeded', 'The directory was watched as long as was asked for');
      stream.end();
    },

    async createWatcher(context, message) {
      return { watcherId: await watchers.open(context.row.id, (signal) => watch(context, message, signal)) };
    },

    async getWatcherEvents(context, message) {
      return { events: watchers.take(context.row.id, WatcherRequest.parse(message).watcherId) };
    },

    async removeWatcher(context, message) {
      watchers.close(context.row.id, WatcherRequest.parse(message).watcherId);
      return {};
    },
  };
}

async function requireDirectory(context: EnvdContext, path: string): Promise<void> {
  const info = await filesOf(context).stat(path, { follow: true });
  if (info.type !== 'directory') throw new CayError('invalid_argument', `path is not a directory: ${path}`);
}

/** Describes entries in the given order, several at once. Entries that are gone are left out. */
async function described(context: EnvdContext, found: FileInfo[]): Promise<EntryInfo[]> {
  const entries: (EntryInfo | undefined)[] = [];
  for (let at = 0; at < found.length; at += AT_ONCE) {
    const some = found.slice(at, at + AT_ONCE);
    entries.push(...(await Promise.all(some.map((info) => entryInfo(context, info).catch(absent)))));
  }
  return entries.filter((entry) => entry !== undefined);
}

async function* withEntries(
  context: EnvdContext,
  events: AsyncIterable<WatchEvent>,
  include: boolean,
): AsyncGenerator<{ name: string; type: string; entry?: EntryInfo }> {
  for await (const { name, type, path } of events) {
    const entry = include ? await statEntry(context, path).catch(absent) : undefined;
    yield { name, type, ...(entry && { entry }) };
  }
}
