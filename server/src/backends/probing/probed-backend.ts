/**
 * A backend whose capabilities say what was seen to work, by runtime.
 *
 * A while after the server has started, one sandbox for each runtime tries the abilities that are wired
 * (`probe-runtime.ts`). The findings are stored by a fingerprint of everything that they depend on (the
 * runtime's program, the kernel, the storage, the guest), so that the next server does not probe again. The
 * next server tries again what did not work. Until a probe has run, an ability is reported as it is wired,
 * and `probes` says `pending`.
 *
 * The sandboxes of probes are in no record: `list` and `watch` leave them out. An id is stored before its
 * sandbox is made, so that the next server removes what a crash has left.
 */
import {
  newId,
  RuntimeProbeSchema,
  SandboxIdSchema,
  type Ability,
  type Capabilities,
  type RuntimeProbe,
  type SandboxId,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import { readJson, writeFileAtomic } from '../../lib/atomic-file.ts';
import { withTimeout } from '../../lib/timeout.ts';
import type { Backend, CallScope, Observation } from '../backend.ts';
import { probeRuntime } from './probe-runtime.ts';

/** What a driver says for its probes. */
export interface Probeable {
  /** The runtime of a sandbox that names none. */
  defaultRuntime(): Promise<string>;
  /** The abilities that are wired on this runtime. */
  wired(runtime: string): Promise<Record<Ability, boolean>>;
  /** Changes whenever a finding about this runtime may change. */
  fingerprint(runtime: string): Promise<string>;
}

export interface ProbedOptions {
  /** Where findings are stored. */
  file: string;
  /** How long after the start probes begin. Default 10 s: the requests of the first seconds come first. */
  delayMs?: number;
  onError?(error: unknown): void;
}

const DELAY_MS = 10_000;
/** How long closing waits for the ability that is being tried. */
const CLOSE_MS = 3_000;

const StoredSchema = z.object({
  findings: z.record(z.string(), RuntimeProbeSchema),
  /** The sandboxes of the probe that runs, or ran when the server was killed. */
  sandboxes: z.array(SandboxIdSchema).default([]),
});
type Stored = z.infer<typeof StoredSchema>;

export async function probedBackend<B extends Backend & Probeable & { destroy(): Promise<void> }>(
  backend: B,
  { file, delayMs = DELAY_MS, onError = () => {} }: ProbedOptions,
): Promise<B & { probed: Promise<void> }> {
  const parsed = StoredSchema.safeParse(await readJson(file).catch(() => undefined));
  const stored: Stored = parsed.success ? parsed.data : { findings: {}, sandboxes: [] };
  const results = new Map<string, RuntimeProbe>();
  const hidden = new Set<SandboxId>(stored.sandboxes);
  const closing = new AbortController();
  const { signal } = closing;

  async function probeAll(): Promise<void> {
    await pause(delayMs, signal);
    if (signal.aborted) return;
    for (const id of stored.sandboxes) await backend.remove(id);
    const { runtimes } = await backend.capabilities();
    for (const runtime of runtimes) {
      if (signal.aborted) return;
      await probeOne(runtime).catch(onError);
    }
  }

  async function probeOne(runtime: string): Promise<void> {
    const key = `${runtime} ${await backend.fingerprint(runtime)}`;
    const known = stored.findings[key];
    if (known && isGood(known)) return void results.set(runtime, known);
    const ids = [newId('sbx'), newId('sbx')] as const;
    for (const id of ids) hidden.add(id);
    stored.sandboxes = [...ids];
    await save();
    const wired = await backend.wired(runtime);
    const probe = await probeRuntime(backend, { runtime, wired, ids, signal }).then(
      (findings): RuntimeProbe => ({ runtime, state: 'done', atMs: Date.now(), ...findings }),
      (error: Error): RuntimeProbe => ({
        ...PENDING,
        runtime,
        state: 'failed',
        atMs: Date.now(),
        reason: error.message.slice(0, 500),
      }),
    );
    // Closing cuts a probe short; that says nothing about the runtime.
    if (signal.aborted) return;
    stored.sandboxes = [];
    const others = Object.entries(stored.findings).filter(([, each]) => each.runtime !== runtime);
    stored.findings = { ...Object.fromEntries(others), [key]: probe };
    results.set(runtime, probe);
    await save();
  }

  const save = () => writeFileAtomic(file, JSON.stringify(stored));

  async function endProbes(): Promise<void> {
    closing.abort();
    await withTimeout(probed, CLOSE_MS, () => new Error('late')).catch(() => {});
  }

  const probed = probeAll().catch(onError);
  return {
    ...backend,
    probed,

    async capabilities(scope?: CallScope) {
      const wired = await backend.capabilities(scope);
      const usual = await backend.defaultRuntime().catch(() => undefined);
      return withFindings(wired, usual, results);
    },

    list: async (scope?: CallScope) => (await backend.list(scope)).filter(({ id }) => !hidden.has(id)),

    // Subscribes at once, as the contract says, and not when the first value is asked for.
    watch: (scope?: CallScope) => without(hidden, backend.watch(scope)[Symbol.asyncIterator]()),

    async close() {
      await endProbes();
      await backend.close();
    },

    async destroy() {
      await endProbes();
      await backend.destroy();
    },
  };
}

const PENDING = { state: 'pending', atMs: null, verified: {}, notes: {} } as const;

const isGood = ({ state, verified }: RuntimeProbe) =>
  state === 'done' && !Object.values(verified).includes(false);

/** The abilities of the default runtime are false where its probe saw them fail. */
function withFindings(
  wired: Capabilities,
  usual: string | undefined,
  results: ReadonlyMap<string, RuntimeProbe>,
): Capabilities {
  const probes = wired.runtimes.map((runtime) => results.get(runtime) ?? { ...PENDING, runtime });
  const abilities = { ...wired.abilities };
  const notes = { ...wired.notes };
  const seen = usual === undefined ? undefined : results.get(usual);
  for (const [ability, works] of Object.entries(seen?.verified ?? {}) as [Ability, boolean][]) {
    if (works) continue;
    abilities[ability] = false;
    notes[ability] = `it failed its probe on ${usual}: ${seen!.notes[ability]}`;
  }
  return { ...wired, abilities, notes, probes };
}

function without(
  hidden: ReadonlySet<SandboxId>,
  changes: AsyncIterator<Observation>,
): AsyncIterableIterator<Observation> {
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      for (;;) {
        const next = await changes.next();
        if (next.done || !hidden.has(next.value.id)) return next;
      }
    },
    async return() {
      await changes.return?.();
      return { done: true, value: undefined };
    },
  };
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms).unref();
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}
