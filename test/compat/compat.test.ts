import { describe } from 'vitest';
import { liveServer } from '../support/live-server.ts';
import { startDockerd, whyNoDockerd } from '../support/dockerd.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { memoryServer } from '../support/memory-server.ts';
import { compatSuite } from './compat-suite.ts';

compatSuite('memory', memoryServer, { snapshots: true, processes: false, resize: true });

const noLocal = whyNoLocal();
if (noLocal) console.warn(`The five systems' words are not tested on runc and gVisor: ${noLocal}`);
describe.skipIf(noLocal).each(['runc', 'runsc'])('local', (runtime) => {
  compatSuite(runtime, () => liveServer({ CAY_RUNTIME: runtime }), {
    snapshots: true,
    processes: true,
    resize: true,
  });
});

const noDocker = whyNoDockerd();
if (noDocker) console.warn(`The five systems' words are not tested on Docker: ${noDocker}`);
describe.skipIf(noDocker)('docker', () => {
  const open = async () => {
    const docker = await startDockerd();
    await docker.importBaseImage('own-base');
    const settings = { CAY_BACKEND: 'docker', CAY_DOCKER_HOST: docker.host, CAY_DOCKER_IMAGE: 'own-base' };
    const server = await liveServer(settings);
    return {
      ...server,
      async [Symbol.asyncDispose]() {
        await server[Symbol.asyncDispose]();
        await docker.stop();
      },
    };
  };
  compatSuite('docker', open, { snapshots: true, processes: true, resize: true });
});
