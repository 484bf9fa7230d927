import { CreateSandboxSchema, ListSandboxesSchema } from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import type { Principal } from '../../control/tenants/principal.ts';
import type { McpHost } from './mcp-host.ts';

const LISTED = 100;

/** The control plane for one principal. */
export function controlHost(control: Control, principal: Principal): McpHost {
  return {
    create: async (request) => (await control.create(principal, CreateSandboxSchema.parse(request))).sandbox,
    async list() {
      const query = ListSandboxesSchema.parse({ limit: LISTED });
      return (await control.list(principal, query)).sandboxes;
    },
    stop: (ref) => control.stop(principal, ref),
    tool: (ref, name, call, options) => control.tools.call(principal, ref, name, call, options),
    async expose(ref, port, visibility) {
      const { ports } = await control.expose(principal, ref, { port, visibility });
      return ports.find((exposed) => exposed.port === port)!;
    },
    checkpoint: (ref, name) => control.snapshot(principal, ref, name === undefined ? {} : { name }),
    async *diff(ref, sides, { signal }) {
      const comparison = await control.compare(principal, ref, sides, { signal });
      try {
        yield* comparison.changes;
      } finally {
        await comparison.release();
      }
    },
    rollback: (ref, to, { force }) => control.rollback(principal, ref, { to, force }),
    fork: async (ref, count) => (await control.fork(principal, ref, { count })).sandboxes,
    async file(ref, path, { most, signal }) {
      const { files } = await control.files(principal, ref);
      const { data } = await files.read(path, { length: most, signal });
      const pieces: Uint8Array[] = [];
      for await (const piece of data) pieces.push(piece);
      return Buffer.concat(pieces);
    },
  };
}
