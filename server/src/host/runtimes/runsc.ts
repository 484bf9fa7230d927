/**
 * `runsc` (gVisor): a kernel of its own between the sandbox and the host's.
 *
 * The whole sandbox is one process to the host's kernel, which ends it as a whole when memory runs out; so
 * the guest has to guard memory from inside. It joins our cgroup rather than being started in it, because it
 * tells the sandbox the group's memory limit as the size of the machine only then.
 */
import { chownSync, lstatSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Bundled } from './bundle.ts';
import { findRunsc, OLDEST_RUNSC, runscDate } from './find-runsc.ts';
import { ociRuntime, type OciOptions } from './oci.ts';
import { runscCheckpoints, type StillFiles } from './runsc-checkpoints.ts';
import type { IdMapping, Runtime } from './runtime.ts';

export function runscRuntime(options: OciOptions): Runtime {
  return ociRuntime(
    {
      name: 'runsc',
      isolation: 'kernel',
      guestGuards: true,
      bundle: { sharesKernel: false },
      flags: [
        '--platform=systrap',
        // Loopback only: outgoing traffic goes through the guest.
        '--network=none',
        // Writes go to the root directory itself, so snapshots include them.
        '--overlay2=none',
        // The guest connects to a socket of the host.
        '--host-uds=open',
      ],
      // The usual network namespace is a mount below the state directory, which could then not be removed. A
      // restored container has other ids and another hostname than the captured one: that is ours to decide.
      flagsIfKnown: ['--gofer-network-namespace=new', '--restore-spec-validation=ignore'],
      flagsWithoutCgroup: ['--ignore-cgroups'],
      hint: 'install runsc (gVisor) 20230621 or newer',
      checkVersion: (version) => {
        const date = runscDate(version);
        return date !== undefined && date < OLDEST_RUNSC ? `"${version}" has no systrap platform` : undefined;
      },
      prepare: (container) => keepTmp(container, options.ids),
      stateFiles: (root, name) => [
        stateFile(root, name),
        join(root, `${name}_sandbox:${name}.lock`),
        recordedState(root, name)?.controlSocketPath ?? join(root, `runsc-${name}.sock`),
        ...Object.values(stillFiles(root, name)),
      ],
      recorded: (root, name) => {
        const state = recordedState(root, name);
        return state && { pid: state.pid, argument: name };
      },
      nameOf: (entry) => /^(.+)_sandbox:\1\.state$/.exec(entry)?.[1],
      checkpoints: (tools) =>
        runscCheckpoints({
          ...tools,
          controlSocket: (name) => recordedState(tools.root, name)?.controlSocketPath,
          stillFiles,
        }),
    },
    { ...options, binary: options.binary ?? findRunsc() },
  );
}

function stateFile(root: string, name: string): string {
  return join(root, `${name}_sandbox:${name}.state`);
}

/** One of these files exists while the container may be stopped for a capture. */
function stillFiles(root: string, name: string): StillFiles {
  return { unsure: join(root, `${name}.unsure`), stopped: join(root, `${name}.stopped`) };
}

function recordedState(root: string, name: string): { pid: number; controlSocketPath?: string } | undefined {
  try {
    const { sandbox } = JSON.parse(readFileSync(stateFile(root, name), 'utf8'));
    const path: unknown = sandbox.controlSocketPath;
    return {
      pid: Number(sandbox.pid),
      ...(typeof path === 'string' && path.startsWith('/') && { controlSocketPath: path }),
    };
  } catch {
    return undefined;
  }
}

/**
 * gVisor mounts a tmpfs over an empty `/tmp`, and files there would be missing from snapshots. A file in it
 * prevents that. No process runs in the tree yet, so the check cannot race; a symlink is left alone.
 */
function keepTmp(container: Bundled, ids: IdMapping): void {
  if (container.readOnlyRoot) return;
  const tmp = join(container.rootDir, 'tmp');
  const stat = lstatSync(tmp, { throwIfNoEntry: false });
  if (!stat?.isDirectory() || readdirSync(tmp).length > 0) return;
  const keep = join(tmp, '.keep');
  mkdirSync(keep, { mode: 0o755 });
  chownSync(keep, ids.hostId, ids.hostId);
}
