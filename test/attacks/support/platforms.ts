/**
 * The platforms that attacks run on: gVisor, runc and a real Docker engine. A suite of attacks is written
 * once and runs on each of them, with a server of its own. What a platform cannot do is skipped with the
 * reason that its capabilities give.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { chmodSync } from 'node:fs';
import type { Ability } from '@cay/sdk/protocol';
import { describe, type TestContext } from 'vitest';
import type { Backend } from '../../../server/src/backends/backend.ts';
import { dockerBackend } from '../../../server/src/backends/docker/docker.ts';
import { openLocal } from '../../../server/src/backends/local/open-local.ts';
import { guestBinary } from '../../../server/src/guest/guest-binary.ts';
import { startDockerd } from '../../support/dockerd.ts';
import { whyLater } from '../../support/tier.ts';
import { DOCKER_IMAGE, startTarget, type Target, type TargetOptions } from './target.ts';
import { whyNotHere } from './why-not-here.ts';

export interface Platform {
  readonly name: 'runsc' | 'runc' | 'docker';
  readonly target: TargetOptions;
  /** Starts a server process on it. */
  start(options?: Omit<TargetOptions, 'backend' | 'runtime'>): Promise<Target>;
  /**
   * Opens its backend for a server in the process of the test, for settings that the command line does not
   * have. The server closes the backend; `dispose` removes what it leaves.
   */
  open(): Promise<{ backend: Backend; dispose(): Promise<void> }>;
}

export const PLATFORMS: readonly Platform[] = [onThisMachine('runsc'), onThisMachine('runc'), onDocker()];

function onThisMachine(runtime: 'runsc' | 'runc'): Platform {
  const target = { backend: 'local', runtime } as const;
  return {
    name: runtime,
    target,
    start: (options) => startTarget({ ...target, ...options }),
    async open() {
      const dir = await mkdtemp('/tmp/cay-attack-');
      // Sandboxes reach their files with ids of their own.
      chmodSync(dir, 0o711);
      return {
        backend: await openLocal({ dir, runtime, poolSize: 0 }),
        async dispose() {
          await (await openLocal({ dir })).destroy();
          await rm(dir, { recursive: true, force: true });
        },
      };
    },
  };
}

function onDocker(): Platform {
  const target = { backend: 'docker' } as const;
  return {
    name: 'docker',
    target,
    start: (options) => startTarget({ ...target, ...options }),
    async open() {
      const engine = await startDockerd();
      await engine.importBaseImage(DOCKER_IMAGE);
      const backend = dockerBackend({
        host: engine.host,
        guestPath: guestBinary(),
        baseImage: DOCKER_IMAGE,
      });
      return { backend, dispose: () => engine.stop() };
    },
  };
}

/**
 * Runs the suite on each platform that this machine has, and prints why it leaves one out. The short tier has
 * `short` alone: most attacks are against the server, which is the same above all platforms.
 */
export function onEachPlatform(
  what: string,
  suite: (platform: Platform) => void,
  { timeout = 60_000, short = ['runc'] }: { timeout?: number; short?: readonly Platform['name'][] } = {},
): void {
  for (const platform of PLATFORMS) {
    const later = short.includes(platform.name) ? undefined : whyLater();
    const reason = later ?? whyNotHere(platform.target);
    if (reason !== undefined) console.info(`${what} (${platform.name}): skipped: ${reason}`);
    describe.skipIf(reason !== undefined)(`${what} (${platform.name})`, { timeout }, () => suite(platform));
  }
}

/** The same for attacks by code in a sandbox: the short tier has them on gVisor and on the shared kernel. */
export function insideEachPlatform(what: string, suite: (platform: Platform) => void): void {
  onEachPlatform(what, suite, { short: ['runsc', 'runc'] });
}

/** Skips the case where the platform lacks the ability, and prints the reason that its capabilities give. */
export function requireAbility(
  { skip, task }: Pick<TestContext, 'skip' | 'task'>,
  target: Pick<Target, 'lacks'>,
  ability: Ability,
): void {
  const reason = target.lacks(ability);
  if (reason === undefined) return;
  console.info(`${task.suite?.name}: "${task.name}" skipped: ${reason}`);
  skip(reason);
}
