/** What programs of a sandbox on this machine reach, through the guest and an egress of the test. */
import { SandboxSpecSchema } from '@cay/sdk/protocol';
import { describe } from 'vitest';
import { egressSuite } from '../../../../test/conformance/egress.ts';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { localWorld } from './testing/local-world.ts';

const reason = whyNoLocal();

describe.skipIf(reason !== undefined).each(['runc', 'runsc'])(
  `egress of the local backend${reason ? ` (skipped: ${reason})` : ''} on %s`,
  (runtime) => {
    egressSuite(
      async (egress) => {
        const world = await localWorld({ runtime, egress });
        return {
          backend: await world.open(),
          spec: SandboxSpecSchema.parse({ runtime, user: 'root' }),
          restart: () => world.open(),
          cleanup: () => world.destroy(),
        };
      },
      { any: true },
    );
  },
);
