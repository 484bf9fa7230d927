/**
 * What `runc`, `crun` and `runsc` have in common: a command line that starts a bundle, and state in a
 * directory.
 *
 * A driver describes how they differ (`OciTraits`). The program is spawned once for each start. A container
 * is ended without it: the cgroup is killed and the few state files are removed, which takes milliseconds
 * where the program's own `delete` takes up to seconds. Liveness is read from the state files and `/proc`.
 */
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { access, constants, readdir } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { guestBinary } from '../../guest/guest-binary.ts';
import { isAlive } from '../../lib/proc.ts';
import { RunError, run } from '../../lib/run.ts';
import type { Bundled, BundleTraits } from './bundle.ts';
import { ociLauncher, START_TIMEOUT_MS } from './oci-launcher.ts';
import { parseVersion } from './parse-version.ts';
import { probeContainer } from './probe-container.ts';
import { requireReadableAccounts } from './readable-accounts.ts';
import type { Checkpoints, Container, IdMapping, Runtime, RuntimeProbe } from './runtime.ts';
import { requireNotRunning } from './require-not-running.ts';

export interface OciOptions {
  /** State of containers is kept below it, in a directory with the runtime's name. */
  stateDir: string;
  ids: IdMapping;
  /** A name to look up in `PATH`, or a path. */
  binary?: string;
  /** Path of the guest binary, which mounts the root for the runtime. */
  helper?: string;
  /** Containers get what the guest needs to bring every connection to itself. */
  egress?: boolean | undefined;
}

/** What the state on disk says of the container's first process. */
export interface RecordedProcess {
  pid: number;
  /** Clock ticks since boot, where the runtime records it. */
  startTime?: number;
  /** Text that its command line has, where the runtime records no time. */
  argument?: string;
}

export interface OciTraits {
  name: string;
  isolation: Runtime['isolation'];
  guestGuards: boolean;
  bundle: Omit<BundleTraits, 'ids' | 'maxOpenFiles'>;
  /** Options before the verb. */
  flags: string[];
  /** Further ones, for programs that know them. The program is asked once which it knows. */
  flagsIfKnown?: string[];
  /** Options before the verb of a container without a cgroup. */
  flagsWithoutCgroup: string[];
  /** How to install it. */
  hint: string;
  /** Known defects of this version, if any. */
  checkVersion?(version: string): string | undefined;
  /** Just before the start. */
  prepare?(container: Bundled): void;
  /** Files and directories of its state below `root`. */
  stateFiles(root: string, name: string): string[];
  recorded(root: string, name: string): RecordedProcess | undefined;
  /** The container that an entry of `root` belongs to. */
  nameOf(entry: string): string | undefined;
  /** Captures and restores memory, where the runtime can. */
  checkpoints?(tools: CheckpointTools): Checkpoints;
}

/** What a driver needs for checkpoints. */
export interface CheckpointTools {
  /** The directory of the containers' state. */
  root: string;
  binary: string;
  /** Path of the guest's program. */
  helper: string;
  /** Runs `program options… verb…`, which leaves no process behind. Rejects with its own message. */
  call(verb: string[]): Promise<void>;
  /** Like `start`, with another verb than `run`. */
  start(container: Container, verb: string[]): Promise<void>;
  status: Runtime['status'];
}

const FAILED_PROBE_MS = 30_000;
export function ociRuntime(traits: OciTraits, options: OciOptions): Runtime {
  const { stateDir, ids, binary = traits.name, helper = guestBinary() } = options;
  const root = join(stateDir, traits.name);
  let probed: Promise<RuntimeProbe> | undefined;
  const launcher = ociLauncher(traits, { root, ids, binary, helper, redirects: options.egress });
  const { launch } = launcher;

  // A user may have 200 keys, and without id ranges all sandboxes are one user to the kernel. The filter
  // refuses keyctl in any case.
  const runVerb = ['run', ...(traits.bundle.sharesKernel ? ['--no-new-keyring'] : [])];

  async function start(container: Container, verb: string[]): Promise<void> {
    requireNotRunning(container.name, await status(container.name));
    mkdirSync(root, { recursive: true });
    // State of a container that ended by itself, or with the machine.
    await forget(container.name);
    try {
      if (traits.bundle.sharesKernel) requireReadableAccounts(container.rootDir);
      await launch(container, [...verb, '--detach']);
    } catch (error) {
      await container.cgroup.remove();
      await forget(container.name);
      throw error;
    }
  }

  async function call(verb: string[]): Promise<void> {
    try {
      // The output of a failing gVisor can be endless.
      await run(binary, ['--root', root, ...(await launcher.flags()), ...verb], { keepBytes: 4_096 });
    } catch (error) {
      const words = error instanceof RunError ? error.stderr.trim() : '';
      throw new Error(words || systemReason(error), { cause: error });
    }
  }

  async function setHostname(name: string, hostname: string): Promise<void> {
    const recorded = traits.recorded(root, name);
    if (recorded === undefined || !isRunning(recorded))
      throw new CayError('unavailable', `Cannot name container "${name}": it does not run`);
    await run(helper, ['hostname', String(recorded.pid), hostname]);
  }

  async function forget(name: string): Promise<void> {
    for (const path of traits.stateFiles(root, name)) rmSync(path, { recursive: true, force: true });
  }

  const status: Runtime['status'] = async (name) => {
    const recorded = traits.recorded(root, name);
    if (recorded === undefined) return 'absent';
    return isRunning(recorded) ? 'running' : 'stopped';
  };

  async function probeOnce(): Promise<RuntimeProbe> {
    if (!(await isExecutable(binary)))
      return { available: false, reason: `"${binary}" is not installed`, hint: traits.hint };
    try {
      const { stdout } = await run(binary, ['--version'], { timeoutMs: START_TIMEOUT_MS });
      const version = parseVersion(traits.name, stdout);
      const wrong = traits.checkVersion?.(version);
      if (wrong !== undefined) return { available: false, version, reason: wrong, hint: traits.hint };
      mkdirSync(root, { recursive: true });
      const { container, remove } = probeContainer(ids, join(stateDir, 'probes', traits.name));
      try {
        await launch(container, runVerb).catch(async (error: unknown) => {
          if (!launcher.joinsUser) throw error;
          launcher.joinsUser = false;
          await forget(container.name);
          await launch(container, runVerb);
        });
      } finally {
        await forget(container.name);
        remove();
      }
      return { available: true, version };
    } catch (error) {
      const words = error instanceof CayError ? error.details['words'] : undefined;
      return {
        available: false,
        reason: typeof words === 'string' ? words : systemReason(error),
        hint: traits.hint,
      };
    }
  }

  /**
   * A success is cached for ever. A failure may have been fixed, or was caused by load, so it is probed
   * again.
   */
  function probe(): Promise<RuntimeProbe> {
    probed ??= probeOnce().then((found) => {
      if (!found.available) setTimeout(() => (probed = undefined), FAILED_PROBE_MS).unref();
      return found;
    });
    return probed;
  }

  return {
    name: traits.name,
    isolation: traits.isolation,
    ids,
    guestGuards: traits.guestGuards,
    program: binary,
    probe,
    start: (container: Container) => start(container, runVerb),
    status,
    ...(traits.bundle.sharesKernel && { setHostname }),
    ...(traits.checkpoints && {
      checkpoints: traits.checkpoints({ root, binary, helper, call, start, status }),
    }),
    remove: async (name, cgroup) => {
      await cgroup.remove();
      await forget(name);
    },
    list: async () => {
      const entries = await readdir(root).catch(() => []);
      return [...new Set(entries.map(traits.nameOf).filter((name) => name !== undefined))].toSorted();
    },
  };
}

function isRunning({ pid, startTime, argument }: RecordedProcess): boolean {
  if (!isAlive(pid, startTime)) return false;
  if (argument === undefined) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(argument);
  } catch {
    return false;
  }
}

async function isExecutable(binary: string): Promise<boolean> {
  const candidates = binary.includes('/')
    ? [binary]
    : (process.env['PATH'] ?? '').split(delimiter).map((dir) => join(dir, binary));
  for (const path of candidates) {
    if (
      await access(path, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return true;
  }
  return false;
}
