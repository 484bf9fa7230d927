import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { openFilesHardLimit } from '../../lib/proc.ts';
import { RunError, run } from '../../lib/run.ts';
import { resourceError } from '../resource-error.ts';
import {
  buildBundle,
  furtherMount,
  limitsOf,
  rootMount,
  userNamespace,
  type Bundled,
  type BundleTraits,
} from './bundle.ts';
import type { OciTraits } from './oci.ts';
import { lastWords, readLog } from './runtime-log.ts';
import type { ContainerMount, IdMapping } from './runtime.ts';

/** Writes bundles and has the program start them, with the helper that mounts their trees. */
export interface OciLauncher {
  /** Whether containers join a user namespace of their own. The probe sets it to false where they cannot. */
  joinsUser: boolean;
  /** Options that this program knows. */
  flags(): Promise<string[]>;
  /** Rejects with what the runtime says of a failure. */
  launch(container: Bundled, verb: string[]): Promise<void>;
}

export interface OciLauncherOptions {
  /** The directory of the containers' state. */
  root: string;
  ids: IdMapping;
  binary: string;
  helper: string;
  redirects: boolean | undefined;
}

export const START_TIMEOUT_MS = 30_000;
/** The helper's exit code when there is no such program. */
const NOT_RUN = 127;
/** The helper's exit code when a directory to mount, or to mount on, is not there. */
const NOT_MOUNTED = 120;

export function ociLauncher(traits: OciTraits, options: OciLauncherOptions): OciLauncher {
  const { root, ids, binary, helper, redirects } = options;
  let maxOpenFiles: number | undefined;
  let flags: Promise<string[]> | undefined;

  function bundleTraits(): BundleTraits {
    maxOpenFiles ??= openFilesHardLimit();
    return { ...traits.bundle, ids, joinsUser: launcher.joinsUser, maxOpenFiles, redirects };
  }

  function writeBundle(container: Bundled): void {
    const bundle = buildBundle(container, bundleTraits());
    // The directory of the socket is mounted read-only, so the runtime cannot create this mount point there.
    if (traits.bundle.sharesKernel && container.cgroup?.memoryPath)
      mkdirSync(join(container.socketDir, 'cgroup'), { recursive: true });
    traits.prepare?.(container);
    mkdirSync(rootMount(container), { recursive: true });
    for (const index of (container.mounts ?? []).keys())
      mkdirSync(furtherMount(container, index), { recursive: true });
    writeFileSync(join(container.bundleDir, 'config.json'), JSON.stringify(bundle), { mode: 0o600 });
  }

  /** Options that a program does not know make it fail, and versions know different ones. */
  function knownFlags(): Promise<string[]> {
    flags ??= askFlags().catch((error: unknown) => {
      flags = undefined;
      throw error;
    });
    return flags;
  }

  async function askFlags(): Promise<string[]> {
    const { flagsIfKnown = [] } = traits;
    if (flagsIfKnown.length === 0) return traits.flags;
    const { stdout, stderr } = await run(binary, ['flags'], { timeoutMs: START_TIMEOUT_MS });
    const known = new Set([...`${stdout}\n${stderr}`.matchAll(/^\s+-([\w-]+)/gm)].map(([, name]) => name));
    return [...traits.flags, ...flagsIfKnown.filter((flag) => known.has(/^--([\w-]+)/.exec(flag)?.[1]))];
  }

  async function launch(container: Bundled, verb: string[]): Promise<void> {
    const log = join(container.bundleDir, 'runtime.log');
    const options = [...(await knownFlags()), ...(container.cgroup ? [] : traits.flagsWithoutCgroup)];
    writeBundle(container);
    try {
      const args = [
        '--root',
        root,
        '--log',
        log,
        ...options,
        ...verb,
        '--bundle',
        container.bundleDir,
        container.name,
      ];
      // No pipes: the container inherits the standard streams, and would hold them open.
      await run(helper, ['on-tree', ...rootOf(container, log), '--', binary, ...args], {
        silent: true,
        timeoutMs: START_TIMEOUT_MS,
      });
    } catch (error) {
      throw startError(traits, container.name, binary, error, lastWords(readLog(log)));
    }
  }

  /** How the helper mounts the root, before it becomes the runtime. */
  function rootOf(container: Bundled, log: string): string[] {
    const { hostId, size } = container.ids ?? ids;
    const user = userNamespace(container, bundleTraits());
    const limits = Object.entries(limitsOf(container, bundleTraits())).flatMap(([name, most]) => [
      '--limit',
      `${name}:${most}`,
    ]);
    return [
      ...['--tree', container.rootDir, '--at', rootMount(container), '--log', log],
      ...(hostId === ids.hostId ? [] : ['--shift', `${ids.hostId}:${hostId}:${size}`]),
      ...(user === undefined ? [] : ['--user', `${hostId}:${size}:${user}`, ...limits]),
      ...(container.mounts ?? []).flatMap((mount, index) => furtherOf(container, mount, index)),
    ];
  }

  /** How the helper mounts a further directory, and makes the directory that it will be mounted on. */
  function furtherOf(container: Bundled, mount: ContainerMount, index: number): string[] {
    const point = ['--point', mount.target];
    if (mount.kind === 'tmpfs') return [...point, '--point-mode', mount.mode];
    const kind = !mount.shifted ? 'host' : mount.makes ? 'made' : 'shared';
    return [
      ...point,
      ...['--mount', mount.source, '--mount-at', furtherMount(container, index)],
      ...['--mount-as', `${kind},${mount.readOnly ? 'ro' : 'rw'}`],
      ...(mount.subpath === undefined ? [] : ['--mount-subpath', mount.subpath]),
    ];
  }

  const launcher: OciLauncher = {
    // With a kernel of its own, per-user resources are counted inside.
    joinsUser: traits.bundle.sharesKernel,
    flags: knownFlags,
    launch,
  };
  return launcher;
}

function startError(
  traits: OciTraits,
  name: string,
  binary: string,
  error: unknown,
  words: string,
): CayError {
  if (error instanceof RunError && (error.reason === 'spawn' || error.exitCode === NOT_RUN)) {
    return resourceError(
      'unavailable',
      { kind: 'container', name },
      (named) => `Cannot start ${named}: "${binary}" cannot be run (${words || error.message})`,
      {
        cause: error,
        details: { words: `"${binary}" cannot be run` },
        hint: traits.hint,
      },
    );
  }
  const said = words || (error as Error).message;
  if (error instanceof RunError && error.exitCode === NOT_MOUNTED)
    return new CayError('failed_precondition', said, {
      cause: error,
      hint: 'a mount needs directories on both sides, and no symlink may lead to them',
      details: { reason: 'mount' },
    });
  return resourceError(
    'unavailable',
    { kind: 'container', name },
    (named) => `Cannot start ${named}: ${traits.name} says: ${said}`,
    { cause: error, details: { words: said } },
  );
}
