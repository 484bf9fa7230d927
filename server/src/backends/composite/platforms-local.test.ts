import { describe, it } from 'vitest';
import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { localPlatform, whyNoLocal } from '../../../../test/support/local-platform.ts';
import { whyLater } from '../../../../test/support/tier.ts';
// The router is made of other backends, so its tests bring some.
// oxlint-disable-next-line no-restricted-imports
import { memoryBackend } from '../memory/memory.ts';
import { platformsBackend } from './platforms.ts';

/** What a guest does is between it and its caller: the router over memory has all the rest. */
const areas = [
  'lifecycle',
  'validation',
  'exec',
  'snapshots',
  'clones',
  'rollback',
  'archives',
  'freeze',
  'concurrency',
  'faults',
];
const reason = whyNoLocal() ?? whyLater();
if (reason === undefined) {
  const factory = async () => {
    const platform = await localPlatform({ runtime: 'runc' });
    const open = (local: typeof platform.backend) =>
      platformsBackend({
        platforms: [
          { name: 'local', open: async () => local },
          { name: 'memory', open: async () => memoryBackend() },
        ],
      });
    return {
      ...platform,
      backend: await open(platform.backend),
      restart: async () => open(await platform.restart!()),
    };
  };
  backendSuite('router of local on runc and memory', factory, { areas });
} else describe('router of local on runc and memory', () => it.skip(reason, () => {}));
