import { SandboxSpecSchema } from '@cay/sdk/protocol';
import { describe } from 'vitest';
import { dockerBackend } from '../../server/src/backends/docker/docker.ts';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';
import { startDockerd, whyNoDockerd } from '../support/dockerd.ts';
import { insideSuite } from './inside-suite.ts';

const why = whyNoDockerd();
const limits = { memoryBytes: 256 * 1024 * 1024, diskBytes: null, pids: 64 };

describe.skipIf(why !== undefined)(
  `attempts from inside a container of Docker${why ? ` (skipped: ${why})` : ''}`,
  () => {
    insideSuite(async (egress) => {
      const engine = await startDockerd();
      await engine.importBaseImage();
      return {
        backend: dockerBackend({ host: engine.host, guestPath: guestBinary(), baseImage: 'base', egress }),
        spec: SandboxSpecSchema.parse({ limits }),
        runtime: 'docker',
        cleanup: () => engine.stop(),
      };
    });
  },
);
