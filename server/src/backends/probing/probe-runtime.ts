/** Tries the abilities of one runtime in a sandbox of its own. */
import { newId, SandboxSpecSchema, type Ability, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { collect, type Collected } from '../../guest/collect.ts';
import type { Guest, GuestExec } from '../../guest/guest.ts';
import { PROBE_BUCKET, PROBE_FILE, PROBE_TEXT } from '../../bucket-mounts/probe-bucket.ts';
import { withTimeout } from '../../lib/timeout.ts';
import type { Backend } from '../backend.ts';
import { withoutUnenforceable } from '../support/check-spec.ts';

/** What a probe of one ability works with. */
export interface Probe {
  backend: Backend;
  id: SandboxId;
  /** For a second sandbox, where a probe needs another spec. */
  other: SandboxId;
  spec: SandboxSpec;
  guest: Guest;
  /** Runs a shell line to its end. */
  run(line: string, options?: Partial<GuestExec>): Promise<Collected>;
  /** The guest of the incarnation that runs now. */
  reconnect(): Promise<Guest>;
}

/** What was tried, and whether it worked. Abilities that are not named were not tried. */
export interface ProbeFindings {
  verified: Partial<Record<Ability, boolean>>;
  /** Why one did not work. */
  notes: Partial<Record<Ability, string>>;
}

export interface ProbeRequest {
  runtime: string;
  wired: Record<Ability, boolean>;
  ids: readonly [SandboxId, SandboxId];
  /** Ends the probe after the ability that is being tried. */
  signal?: AbortSignal;
}

/** Resolves with what went wrong, or nothing. */
type Attempt = (probe: Probe) => Promise<string | undefined | void>;

const MiB = 1024 * 1024;
const LIMITS = { memoryBytes: 256 * MiB, diskBytes: 128 * MiB, pids: 64, openFiles: 512 };
/** One ability that takes longer does not work here. */
const TRY_MS = 20_000;
const START_MS = 60_000;

/** The id of each command must differ. */
let commands = 0;

/**
 * In this order: what may end processes of the sandbox comes last. One throws `NotTried` where the image
 * lacks a program to try it with.
 */
const PROBES: Partial<Record<Ability, Attempt>> = {
  async processes({ run }) {
    const { stdout } = await run('echo $((6 * 7)) $$');
    if (!stdout.toString().startsWith('42 ')) return `a shell printed ${quote(stdout)}`;
  },
  async pty({ run }) {
    const { stdout } = await run('test -t 0 && test -t 1 && echo terminal', { pty: { cols: 80, rows: 24 } });
    if (!stdout.toString().includes('terminal')) return 'a command on a terminal saw none';
  },
  async signals({ guest, spec }) {
    const handle = await guest.exec(commandOf(spec, { argv: ['sleep', '600'] }));
    await guest.signal(handle.id, 'SIGTERM');
    const { end } = await collect(handle, { maxBytes: 1024 });
    if (end.kind !== 'signalled') return `a command that got SIGTERM ended as ${end.kind}`;
  },
  async treeKill({ run }) {
    const { end } = await run('setsid sleep 77777 & sleep 77777', { timeoutMs: 300 });
    if (end.kind !== 'timed_out') return `a command with a timeout ended as ${end.kind}`;
    const { stdout } = await run('grep -ls "7777[7]" /proc/[0-9]*/cmdline || true');
    if (stdout.length > 0) return 'a daemon survived the timeout of its command';
  },
  async users({ run }) {
    const { stdout } = await run('id -u', { user: 'root' });
    if (stdout.toString().trim() !== '0') return `root has the user id ${quote(stdout)}`;
  },
  async openFilesLimit({ run, spec }) {
    const { stdout } = await run('ulimit -n');
    if (Number(stdout.toString()) !== spec.limits.openFiles) return `the limit is ${quote(stdout)}`;
  },
  async xattrs({ guest }) {
    const files = guest.files('user');
    await files.write('/home/user/probe-xattr', new Uint8Array([1]));
    const set = await files.xattrs('/home/user/probe-xattr', { probe: new Uint8Array([7]) });
    if (set['probe']?.[0] !== 7) return 'an attribute that was set cannot be read';
  },
  async watch({ guest }) {
    const files = guest.files('user');
    await files.mkdir('/home/user/probe-watch');
    const events = (await files.watch('/home/user/probe-watch'))[Symbol.asyncIterator]();
    try {
      const next = events.next();
      await files.write('/home/user/probe-watch/file', new Uint8Array([1]));
      if ((await next).done) return 'the watch ended without an event';
    } finally {
      await events.return?.();
    }
  },
  async tar({ guest }) {
    const files = guest.files('user');
    await files.write('/home/user/probe-tar/file', Buffer.from('packed'));
    await files.untar('/home/user/probe-untar', await files.tar('/home/user/probe-tar'));
    const { info } = await files.read('/home/user/probe-untar/file');
    if (info.sizeBytes !== 6) return `a file of 6 bytes came out with ${info.sizeBytes}`;
  },
  async ports({ guest, run, spec }) {
    const listen =
      'import socket; s = socket.create_server(("127.0.0.1", 7)); s.accept()[0].sendall(b"hello")';
    const { stdout } = await run('command -v python3 || true');
    if (stdout.length === 0) throw new NotTried();
    await guest.exec(commandOf({ ...spec, user: 'root' }, { argv: ['python3', '-c', listen] }));
    for (let tries = 0; ; tries++) {
      try {
        await using connection = await guest.ports.connect(7);
        for await (const bytes of connection.readable) if (Buffer.from(bytes).includes('hello')) return;
        return 'a connection carried nothing';
      } catch (error) {
        if (tries > 50) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  },
  async freeze({ backend, id, run }) {
    const freezing = backend.ability('freeze');
    if (!freezing) return 'the backend has no such verb';
    await freezing.freeze(id);
    if (!(await backend.observe(id)).frozen) return 'a frozen sandbox is not reported as frozen';
    const waiting = run('true');
    const early = await Promise.race([
      waiting.then(() => true),
      new Promise<false>((resolve) => setTimeout(() => resolve(false), 300)),
    ]);
    await freezing.thaw(id);
    await waiting;
    if (early) return 'a command ended while the sandbox was frozen';
  },
  async resize({ backend, id }) {
    await backend.ability('resize')?.resize(id, { memoryBytes: 320 * MiB });
    const { memoryLimitBytes } = await backend.stats(id);
    if (memoryLimitBytes !== 320 * MiB) return `the limit is ${memoryLimitBytes} bytes after a resize`;
    await backend.ability('resize')?.resize(id, { memoryBytes: LIMITS.memoryBytes });
  },
  async snapshots({ backend, id, guest, reconnect }) {
    const snapshots = backend.ability('snapshots');
    if (!snapshots) return 'the backend has no such verbs';
    const snapshot = newId('snap');
    await guest.files('user').write('/home/user/probe-note', Buffer.from('then'));
    try {
      await snapshots.snapshot(id, snapshot);
      await guest.files('user').write('/home/user/probe-note', Buffer.from('now!!'));
      await snapshots.rollback(id, snapshot);
      const { sizeBytes } = await (await reconnect()).files('user').stat('/home/user/probe-note');
      if (sizeBytes !== 4) return 'a rollback did not bring a file back';
    } finally {
      await backend.remove(id);
      await snapshots.removeSnapshot(snapshot);
    }
  },
  async memorySnapshots({ backend, id, spec, guest, reconnect }) {
    const handle = await guest.exec(commandOf(spec, { argv: ['sleep', '88888'] }));
    await backend.ability('memorySnapshots')!.hibernate(id);
    if ((await backend.observe(id)).phase !== 'hibernated') return 'it is not hibernated afterwards';
    await backend.ensure(id, spec);
    const found = (await (await reconnect()).commands()).find((command) => command.id === handle.id);
    if (!found || found.end) return 'a process did not survive hibernation';
  },
  async diskLimit({ run }) {
    const { end } = await run('dd if=/dev/zero of=/home/user/probe-disk bs=1M count=192 status=none');
    await run('rm -f /home/user/probe-disk');
    if (end.kind === 'exited' && end.exitCode === 0) return 'more was written than the limit allows';
  },
  async pidsLimit({ run }) {
    const line = 'i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; echo all';
    const { stdout } = await run(line, { timeoutMs: 10_000 });
    if (stdout.toString().includes('all')) return 'more processes were started than the limit allows';
  },
  async memoryLimit({ run }) {
    const { end } = await run('head -c 400000000 /dev/zero | tail -c 400000000 >/dev/null');
    if (end.kind === 'exited' && end.exitCode === 0) return 'a process had more memory than the limit allows';
  },
  async bucketMounts({ backend, spec, other: id }) {
    const path = '/mnt/probe';
    const mounts = [{ type: 'bucket' as const, bucket: PROBE_BUCKET, path, readOnly: false }];
    try {
      await backend.ensure(id, { ...spec, mounts });
      const guest = await backend.connect(id);
      const shell = `cat ${path}/${PROBE_FILE} && cp ${path}/${PROBE_FILE} ${path}/copy && cat ${path}/copy`;
      const { end, stdout, stderr } = await collect(await guest.exec(commandOf(spec, { shell })), {
        maxBytes: 4096,
      });
      if (end.kind !== 'exited' || end.exitCode !== 0) return `a file could not be copied: ${quote(stderr)}`;
      if (stdout.toString() !== PROBE_TEXT + PROBE_TEXT) return `the file has ${quote(stdout)}`;
    } finally {
      await backend.remove(id);
    }
  },
  async readOnlyRoot({ backend, spec, other: id }) {
    const readOnly = { ...spec, readOnlyRoot: true };
    try {
      await backend.ensure(id, readOnly);
      const guest = await backend.connect(id);
      const touch = await guest.exec(commandOf({ ...spec, user: 'root' }, { argv: ['touch', '/etc/probe'] }));
      const { end } = await collect(touch, { maxBytes: 1024 });
      if (end.kind === 'exited' && end.exitCode === 0) return 'a file was made below a read-only root';
    } finally {
      await backend.remove(id);
    }
  },
};

/** The image has no program to try it with. */
class NotTried extends Error {}

/**
 * Tries what the backend has wired on this runtime, in sandboxes of these ids, which are removed afterwards.
 * Rejects if no sandbox starts on the runtime.
 */
export async function probeRuntime(
  backend: Backend,
  { runtime, wired, ids, signal }: ProbeRequest,
): Promise<ProbeFindings> {
  const spec = SandboxSpecSchema.parse({ ...withoutUnenforceable({}, wired, LIMITS), runtime });
  const findings: ProbeFindings = { verified: {}, notes: {} };
  const [id] = ids;
  try {
    await withTimeout(backend.ensure(id, spec), START_MS, () => late('No sandbox started', START_MS));
    for (const [ability, attempt] of Object.entries(PROBES) as [Ability, Attempt][]) {
      if (!wired[ability] || signal?.aborted) continue;
      const note = await tryOne(backend, ids, spec, attempt);
      if (note === NOT_TRIED) continue;
      findings.verified[ability] = note === undefined;
      if (note !== undefined) findings.notes[ability] = note;
    }
  } finally {
    await backend.remove(id);
  }
  return findings;
}

const NOT_TRIED = Symbol('not tried');

/** Undefined if it works, else why not. */
async function tryOne(
  backend: Backend,
  [id, other]: ProbeRequest['ids'],
  spec: SandboxSpec,
  attempt: Attempt,
): Promise<string | undefined | typeof NOT_TRIED> {
  const work = async () => {
    // A probe before this one may have ended the sandbox.
    await backend.ensure(id, spec);
    const guest = await backend.connect(id);
    const run: Probe['run'] = async (shell, options) =>
      collect(await (await backend.connect(id)).exec(commandOf(spec, { shell, ...options })), {
        maxBytes: 4096,
      });
    return attempt({ backend, id, other, spec, guest, run, reconnect: () => backend.connect(id) });
  };
  try {
    return (await withTimeout(work(), TRY_MS, () => late('It did not end', TRY_MS))) ?? undefined;
  } catch (error) {
    return error instanceof NotTried ? NOT_TRIED : systemReason(error);
  }
}

function commandOf(spec: SandboxSpec, command: Partial<GuestExec>): GuestExec {
  const { env, user } = spec;
  return { id: `probe-${++commands}`, env, workdir: '/', user, ...command };
}

const late = (what: string, ms: number) => new Error(`${what} within ${ms / 1000} s`);
const quote = (bytes: Uint8Array) => JSON.stringify(Buffer.from(bytes).toString().trim().slice(0, 100));
