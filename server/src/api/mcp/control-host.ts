import { CayError, CreateSandboxSchema, ListSandboxesSchema } from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import type { Principal } from '../../control/tenants/principal.ts';
import { collectBytes } from '../../lib/bounded-bytes.ts';
import type { McpHost } from './mcp-host.ts';

const LISTED = 100;

/** In which a file is in memory until its answer is sent. */
const COPIES = 4;

/** The control plane for one principal. `hold` takes bytes of what its project may have collected. */
export function controlHost(
  control: Control,
  principal: Principal,
  hold: (bytes: number) => boolean = () => true,
): McpHost {
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
      // It becomes a text and then JSON, and waits for a reader who may be slow.
      if (!hold(COPIES * most))
        throw new CayError(
          'resource_exhausted',
          `Cannot read "${path}": the project has many answers under way`,
          {
            hint: 'read fewer files at once',
          },
        );
      const { files } = await control.files(principal, ref);
      const { data } = await files.read(path, { length: most, signal });
      return (await collectBytes(data, most)) ?? Buffer.alloc(0);
    },
  };
}
