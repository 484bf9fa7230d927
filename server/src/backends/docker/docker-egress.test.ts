/** What programs of a container reach, through the guest and an egress of the test. */
import { SandboxSpecSchema } from '@cay/sdk/protocol';
import { describe } from 'vitest';
import { egressSuite } from '../../../../test/conformance/egress.ts';
import { startDockerd, whyNoDockerd } from '../../../../test/support/dockerd.ts';
import type { Egress } from '../../egress/egress.ts';
import { guestBinary } from '../../guest/guest-binary.ts';
import { dockerBackend } from './docker.ts';

const why = whyNoDockerd();
if (why !== undefined) console.info(`egress of docker: skipped: ${why}`);

describe.skipIf(why !== undefined)('egress of the docker backend', () => {
  egressSuite(
    async (egress: Egress) => {
      const engine = await startDockerd();
      await engine.importBaseImage();
      const open = () =>
        dockerBackend({ host: engine.host, guestPath: guestBinary(), baseImage: 'base', egress });
      return {
        backend: open(),
        spec: SandboxSpecSchema.parse({ limits: { diskBytes: null } }),
        restart: async () => open(),
        cleanup: () => engine.stop(),
      };
    },
    // The image of the tests has Python and no other client.
    { any: false, clients: false },
  );
});
