import { describe, it } from 'vitest';
import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import type { PlatformFactory } from '../../../../test/conformance/test-platform.ts';
import { echoProgram } from '../../../../test/support/echo-program.ts';
import { whyLater } from '../../../../test/support/tier.ts';
// The router is made of other backends, so its tests bring some.
// oxlint-disable-next-line no-restricted-imports
import { memoryBackend } from '../memory/memory.ts';
import { platformsBackend } from './platforms.ts';

const memory = () => memoryBackend({ commands: { 'echo-server': echoProgram } });

const onTheFirst = 'an archive that names no platform is taken in on the default one, which is another here';
const NOT_ON_OTHER = {
  'a snapshot that was exported and imported is the same snapshot': onTheFirst,
  'an archive outlives the snapshot and the sandbox that it is of': onTheFirst,
};

for (const platform of ['one', 'other']) {
  const title = `router of two memory backends, on "${platform}"`;
  const later = platform === 'one' ? whyLater() : undefined;
  if (later !== undefined) {
    describe(`backend ${title}`, () => it.skip(later, () => {}));
    continue;
  }
  const factory: PlatformFactory = async () => {
    const parts = { one: memory(), other: memory() };
    const backend = await platformsBackend({
      platforms: [
        { name: 'one', open: async () => parts.one },
        { name: 'other', open: async () => parts.other },
      ],
    });
    return {
      backend,
      // The default is not named, as callers do not.
      ...(platform === 'other' && { spec: { platform } }),
      crash: async (id) => parts[platform as keyof typeof parts].crash(id),
      leftovers: async () => (await backend.list()).map(({ id }) => id),
      echoServer: (port) => ['echo-server', `${port}`],
      cleanup: () => backend.close(),
    };
  };
  backendSuite(title, factory, platform === 'other' ? { skip: NOT_ON_OTHER } : {});
}
