import { SandboxSpecSchema } from '@cay/sdk/protocol';
import { describe } from 'vitest';
import { localWorld } from '../../server/src/backends/local/testing/local-world.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { insideSuite } from './inside-suite.ts';

const reason = whyNoLocal();
const MiB = 1024 * 1024;
const limits = { memoryBytes: 256 * MiB, diskBytes: 256 * MiB, pids: 64 };

describe.skipIf(reason !== undefined).each(['runc', 'runsc'])(
  `attempts from inside a sandbox on %s${reason ? ` (skipped: ${reason})` : ''}`,
  (runtime) => {
    insideSuite(async (egress) => {
      const world = await localWorld({ runtime, egress });
      return {
        backend: await world.open(),
        spec: SandboxSpecSchema.parse({ runtime, limits }),
        runtime,
        cleanup: () => world.destroy(),
      };
    });
  },
);
