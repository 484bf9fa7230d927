/**
 * Memory images of gVisor.
 *
 * Everything inside is stopped first, by a call to the sandbox's control socket, then another call, or `runsc
 * checkpoint`, writes the image. That stops and continues the sandbox by itself, but stops are counted: ours
 * outlasts it, and holds while the files are copied. What has been written is in the tree by then, because
 * gVisor writes through to the host's files.
 *
 * To continue a sandbox that is not stopped ends it. So an empty file beside the state says by its name
 * whether it is: `stopped`, or `unsure` around the calls, and then whether something can be run in it tells.
 * A name can be changed on a disk that is full.
 */
import { createHash } from 'node:crypto';
import { closeSync, existsSync, openSync, renameSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { arch } from 'node:os';
import { delimiter, join } from 'node:path';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { isDiskFull } from '../../lib/disk-full.ts';
import { run, RunError } from '../../lib/run.ts';
import { GUEST_PATH } from './bundle.ts';
import type { CheckpointTools } from './oci.ts';
import { parseVersion } from './parse-version.ts';
import type { Checkpoints } from './runtime.ts';
import { runscDate } from './find-runsc.ts';
import { writeThroughSocket } from './write-through-socket.ts';
import { callSandbox } from './sandbox-control.ts';
import { resourceError } from '../resource-error.ts';

export interface RunscCheckpointTools extends CheckpointTools {
  /** Undefined if there is no such container. */
  controlSocket(name: string): string | undefined;
  /** One of these files exists while the container may be stopped. */
  stillFiles(root: string, name: string): StillFiles;
}

export interface StillFiles {
  unsure: string;
  stopped: string;
}

/**
 * Versions whose `Checkpoint` call is known. It is internal to gVisor and may change; with others the program
 * is run.
 */
const CALLED_WITH_FILES = new Set([20240729, 20260905]);

/** Stopping waits for system calls in progress, continuing waits for nothing. */
const CONTROL_MS = 30_000;
/** A sandbox that runs nothing for this long counts as stopped: far longer than on any loaded machine. */
const PROBE_MS = 20_000;

export function runscCheckpoints(tools: RunscCheckpointTools): Checkpoints {
  const { root, binary } = tools;
  let compatible: Promise<string> | undefined;
  let taking: Promise<boolean> | undefined;

  const stillFiles = (name: string) => tools.stillFiles(root, name);

  async function call(name: string, method: 'Pause' | 'Resume'): Promise<void> {
    const socket = tools.controlSocket(name);
    if (socket === undefined) throw new CayError('unavailable', `Container "${name}" does not exist`);
    await callSandbox(socket, `containerManager.${method}`, CONTROL_MS);
  }

  async function pause(name: string): Promise<void> {
    const { unsure, stopped } = stillFiles(name);
    closeSync(openSync(unsure, 'w'));
    await call(name, 'Pause');
    renameSync(unsure, stopped);
  }

  /** Of one that is known to stand still. */
  async function resume(name: string): Promise<void> {
    const { unsure, stopped } = stillFiles(name);
    if (existsSync(stopped)) renameSync(stopped, unsure);
    await call(name, 'Resume');
    rmSync(unsure, { force: true });
  }

  async function release(name: string): Promise<void> {
    const { unsure, stopped } = stillFiles(name);
    const known = existsSync(stopped);
    if ((!known && !existsSync(unsure)) || (await tools.status(name)) !== 'running') return;
    if (known || (await standsStill(name))) await resume(name);
    else rmSync(unsure, { force: true });
  }

  async function standsStill(name: string): Promise<boolean> {
    try {
      await run(binary, ['--root', root, 'exec', name, GUEST_PATH, 'version'], {
        silent: true,
        timeoutMs: PROBE_MS,
      });
      return false;
    } catch (error) {
      return error instanceof RunError && error.reason === 'timeout';
    }
  }

  /** Compressing would take ten times as long. */
  async function write(name: string, imageDir: string): Promise<void> {
    const socket = tools.controlSocket(name);
    if (socket !== undefined && (await takesFiles()))
      return writeThroughSocket({ helper: tools.helper, socket, imageDir });
    const how = ['--leave-running', '--compression=none', '--image-path', imageDir];
    await tools.call(['checkpoint', ...how, name]);
  }

  function takesFiles(): Promise<boolean> {
    taking ??= run(binary, ['--version']).then(({ stdout }) => {
      const date = runscDate(parseVersion('runsc', stdout));
      return date !== undefined && CALLED_WITH_FILES.has(date);
    });
    return taking;
  }

  const capture: Checkpoints['capture'] = async (name, cgroup, { imageDir, goOn, whileStill }) => {
    try {
      await pause(name);
      await write(name, imageDir);
      await whileStill();
      if (goOn) await resume(name);
    } catch (error) {
      await release(name);
      throw captureError(name, error);
    }
    if (!goOn) await cgroup.kill();
  };

  return {
    capture,
    release,
    restore: (container, imageDir) => tools.start(container, ['restore', '--image-path', imageDir]),
    compatibility: () => (compatible ??= describeHost(binary)),
  };
}

/** What the sandbox says of files that it cannot keep, before its many lines of where it noticed. */
const DELETED = /dentry\("([^"]*)"\)\.beforeSave: deleted/;

function captureError(name: string, error: unknown): CayError {
  if (isCayError(error)) return error;
  const words = (error as Error).message.split('\n')[0]!.slice(0, 500);
  const deleted = DELETED.exec(words)?.[1];
  if (deleted !== undefined) {
    return resourceError(
      'failed_precondition',
      { kind: 'container', name },
      (container) => `Cannot keep the memory of ${container}: a process holds a deleted file open`,
      {
        cause: error,
        details: { reason: 'deleted_file_open', path: `/${deleted}` },
        hint: 'keep the files alone, or end that process first',
      },
    );
  }
  const full =
    isDiskFull(error) || /no space left on device|disk quota exceeded/i.test((error as Error).message);
  return resourceError(
    full ? 'resource_exhausted' : 'unavailable',
    { kind: 'container', name },
    (container) =>
      `Cannot keep the memory of ${container}: ${full ? 'the disk is full' : `runsc says: ${words}`}`,
    { cause: error, details: { words } },
  );
}

/** An image can be restored only by the same build, on a processor with the same features. */
async function describeHost(binary: string): Promise<string> {
  const [{ stdout }, build, cpuinfo] = await Promise.all([
    run(binary, ['--version']),
    readFile(locate(binary)),
    readFile('/proc/cpuinfo', 'utf8'),
  ]);
  const features = /^(?:flags|Features)\s*:\s*(.*)$/m.exec(cpuinfo)?.[1] ?? '';
  return [
    parseVersion('runsc', stdout),
    `build ${digest(build)}`,
    `${arch()} processor ${digest(features.split(/\s+/).toSorted().join(' '))}`,
  ].join(', ');
}

function locate(binary: string): string {
  if (binary.includes('/')) return binary;
  const found = (process.env['PATH'] ?? '').split(delimiter).map((dir) => join(dir, binary));
  return found.find((path) => existsSync(path)) ?? binary;
}

function digest(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex').slice(0, 12);
}
