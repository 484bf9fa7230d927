import type { FileEvent, FileInfo } from '@cay/sdk/protocol';
import { bytesOf, call, iterate, nothing, promptMessage, upload, type Reach } from './call.ts';
import type { CborMap } from './cbor.ts';
import type { CallOptions, Files } from './guest.ts';
import type { GuestStream } from './stream.ts';
import { bool, int, parseEntries, parseFileEvents, parseFileInfo, parseXattrs } from './parse.ts';

/** The files of a sandbox, with the rights of `user`. */
export function guestFiles(reach: Reach, user: string): Files {
  const ask = <T>(
    op: string,
    request: CborMap,
    options: CallOptions | undefined,
    parse: (answer: CborMap) => T,
  ) => call(reach, { op, request: { user, ...request }, options }, parse);
  const open = async (op: string, request: CborMap, options: CallOptions | undefined, half = true) =>
    (await reach(options)).open(op, { user, ...request }, { signal: options?.signal, half, lends: true });
  const info = (answer: CborMap): FileInfo => parseFileInfo(answer['info']);

  return {
    stat: (path, options) => ask('stat', { path, follow: options?.follow ?? false }, options, info),

    list: (path, options) =>
      iterate(
        () => open('list', { path, depth: options?.depth ?? 1 }, options),
        (item) => (item.message ? parseEntries(item.message) : []),
      ),

    async read(path, options) {
      const stream = await open('read', { path, offset: options?.offset, length: options?.length }, options);
      return {
        info: stream.check(info, await promptMessage(stream, 'read')),
        data: bytesOf(stream, options?.length),
      };
    },

    async write(path, data, options) {
      const { mode, append, exclusive, reach: far, onLook } = options ?? {};
      const request = { path, mode, append, exclusive, reach: far, ...(onLook && { look: true }) };
      const stream = await open('write', request, options, false);
      return upload(stream, data, info, (message) => {
        if (onLook && 'exists' in message) onLook(bool(message, 'exists'));
      });
    },

    mkdir: (path, options) =>
      ask('mkdir', { path, mode: options?.mode, reach: options?.reach }, options, (answer) =>
        bool(answer, 'created'),
      ),
    move: (from, to, options) => {
      const { overwrite = false, reach: far } = options ?? {};
      return ask('move', { from, to, overwrite, reach: far }, options, nothing);
    },
    remove: (path, options) => {
      const { recursive = false, reach: far } = options ?? {};
      return ask('remove', { path, recursive, reach: far }, options, nothing);
    },
    chmod: (path, mode, options) =>
      ask('chmod', { path, mode, recursive: options?.recursive ?? false }, options, nothing),
    chown: (path, owner, options) =>
      ask('chown', { path, owner, recursive: options?.recursive ?? false }, options, nothing),
    symlink: (path, target, options) => ask('symlink', { path, target }, options, nothing),
    xattrs: (path, set, options) => ask('xattrs', { path, set, reach: options?.reach }, options, parseXattrs),

    async watch(path, options) {
      const begin = async () => {
        const stream = await open('watch', { path, recursive: options?.recursive ?? false }, options);
        await promptMessage(stream, 'watch');
        stream.markLongLived();
        return stream;
      };
      let first: GuestStream | undefined = await begin();
      return iterate<FileEvent>(
        () => {
          const stream = first ?? begin();
          first = undefined;
          return stream;
        },
        (item) => (item.message?.['events'] === undefined ? [] : parseFileEvents(item.message)),
        // Changes during the disconnection are unknown.
        () => [{ type: 'overflow', path }],
      );
    },

    async tar(path, options) {
      return bytesOf(await open('tar', { path, paths: options?.paths }, options));
    },

    async untar(path, data, options) {
      const stream = await open('untar', { path }, options, false);
      return upload(stream, data, (answer) => ({
        entries: int(answer, 'entries'),
        bytes: int(answer, 'bytes'),
      }));
    },
  };
}
