import { Sandbox, type ConnectOptions } from '@cay/sdk/client';
import type { McpHost } from '../../api/mcp/mcp-host.ts';

const LISTED = 100;

/** A server of Cay as its clients see it. */
export function sdkMcpHost(options: ConnectOptions): McpHost {
  const find = (ref: string) => Sandbox.connect(ref, options);
  return {
    create: async (request) => (await Sandbox.create(request, options)).info,
    async list() {
      const found = [];
      for await (const { info } of Sandbox.list(options)) {
        found.push(info);
        if (found.length === LISTED) break;
      }
      return found;
    },
    stop: async (ref) => (await find(ref)).stop(),
    async tool(ref, name, { input = {}, ...call }, { signal, onProgress }) {
      const sandbox = await find(ref);
      for await (const event of sandbox.tools.stream(name, input, { ...call, signal })) {
        if (event.type === 'progress') onProgress?.(event);
        else if (event.type === 'result') return event.result;
      }
      throw new Error('The server ended the call without a result');
    },
    expose: async (ref, port, visibility) => (await find(ref)).expose(port, { visibility }),
    checkpoint: async (ref, name) => (await find(ref)).snapshot(name === undefined ? {} : { name }),
    async *diff(ref, { from, to }, { signal }) {
      yield* (await find(ref)).diff(from, to, { signal });
    },
    rollback: async (ref, to, { force }) => (await find(ref)).rollback(to, { force }),
    fork: async (ref, count) => (await (await find(ref)).fork(count)).map(({ info }) => info),
    file: async (ref, path, { most, signal }) =>
      (await find(ref)).files.read(path, { offset: 0, length: most, signal }),
  };
}
