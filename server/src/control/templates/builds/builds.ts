import { randomUUID } from 'node:crypto';
import {
  BuildTemplateSchema,
  CayError,
  SomeLimitsSchema,
  isCayError,
  type SnapshotId,
} from '@cay/sdk/protocol';
import { Semaphore } from '../../../lib/semaphore.ts';
import type { Principal } from '../../tenants/principal.ts';
import type { QuotaLedger } from '../../tenants/quota-ledger.ts';
import type { Records } from '../../../records/records.ts';
import type { Tables } from '../../../records/tables/tables.ts';
import { awaitReady, readyOf, recordedReady } from './await-ready.ts';
import { buildFiles, type BuildFilesOptions } from './build-files.ts';
import { buildLog, type BuildLog } from './build-log.ts';

import { OF_BUILD } from './build-sandboxes.ts';
import type { Build, BuildFailure, Builds, DockerfileRecipe, Recipe } from './build.ts';
import { explained, isDockerfile, runBuild, type BuildControl } from './run-build.ts';
import { stepCache } from './step-cache.ts';
import { planOf, thisArchitecture } from '../dockerfile/run-dockerfile.ts';

export interface BuildsOptions {
  control: BuildControl;
  records: Records;
  /** Where uploaded files are stored. */
  directory: string;
  quota?: Pick<QuotaLedger, 'counts' | 'begin' | 'requireRoom'>;
  files?: BuildFilesOptions;
  /** The timeout of a build, and the longest that one may ask for. Default 30 minutes. */
  timeoutMs?: number;
  /** What steps that are kept for later builds may take, for each project. */
  cache?: { maxSteps?: number; maxBytes?: number };
  now?(): number;
  onError?(error: unknown): void;
}

const AT_ONCE = 2;
/** Builds of one project that are waiting or building. */
const MOST_OPEN = 50;
const KEPT = 1000;
/** A log may have megabytes, so only the logs of the newest builds are kept. */
const KEPT_LOGS = 100;
const TIMEOUT_MS = 30 * 60_000;
const WAITING_MS = 24 * 3600_000;
const SETTLE_MS = 60_000;

interface Running {
  log: BuildLog;
  ended: Promise<void>;
  cancel: AbortController;
}
type AnyRecipe = Recipe | DockerfileRecipe;

/** Opens builds. Those that an earlier server left unfinished have failed. */
export async function openBuilds(options: BuildsOptions): Promise<Builds> {
  const { control, records, quota, timeoutMs = TIMEOUT_MS, now = Date.now, onError = () => {} } = options;
  const { builds } = records;
  const files = buildFiles(options.directory, { quota, ...options.files });
  const permits = new Semaphore(AT_ONCE);
  const closing = new AbortController();
  const running = new Map<string, Running>();

  for (const build of await builds.unfinished()) {
    if (build.state === 'waiting') continue;
    const failure = { message: 'The server was stopped while this was being built', step: 0, steps: 0 };
    await clear(build);
    await builds.ended(build.id, { failure }, [], now());
  }

  /** Removes what a build of a killed server left. Steps that it has recorded serve later builds. */
  async function clear({ id, project }: Build): Promise<void> {
    const principal: Principal = { project, key: null, role: 'admin' };
    const label = `${OF_BUILD}=${id}`;
    const { sandboxes } = await control.list(principal, { label, limit: 1000 });
    for (const sandbox of sandboxes) await control.remove(principal, sandbox.id).catch(onError);
    const { snapshots } = await control.snapshots(principal, { label, limit: 1000 });
    for (const { id: snapshot } of snapshots) {
      if (await records.buildSteps.has(snapshot)) continue;
      await control.removeSnapshot(principal, snapshot).catch((error: unknown) => {
        // A template has it already.
        if (!isCayError(error, 'failed_precondition')) onError(error);
      });
    }
  }

  async function find(on: Tables, principal: Principal, id: string): Promise<Build> {
    const build = await on.builds.get(id);
    if (build?.project === principal.project) return build;
    throw new CayError('not_found', `Build "${id.slice(0, 80)}" does not exist`);
  }

  /** Inherits the start command of its base template unless the recipe has another. */
  async function inherited(principal: Principal, recipe: AnyRecipe): Promise<AnyRecipe> {
    if (isDockerfile(recipe)) return recipe;
    const parent = (await control.templates(principal)).find(({ name }) => name === recipe.from);
    const before = parent?.snapshot ? await builds.of(parent.snapshot) : undefined;
    if (recipe.start !== undefined || !before?.start) return recipe;
    return { ...recipe, start: before.start, ready: recipe.ready ?? before.ready ?? undefined };
  }

  async function perform(
    principal: Principal,
    build: Build,
    given: AnyRecipe,
    { log, cancel }: Pick<Running, 'log' | 'cancel'>,
  ): Promise<void> {
    let step = 0;
    const mostMs = Math.min(timeoutMs, (isDockerfile(given) ? given.timeoutMs : undefined) ?? timeoutMs);
    const deadline = AbortSignal.timeout(mostMs);
    const signal = AbortSignal.any([closing.signal, cancel.signal, deadline]);
    const cache = stepCache({ control, records, principal, now, ...options.cache });
    try {
      signal.throwIfAborted();
      const recipe = await inherited(principal, given);
      await builds.started(build.id, commandsOf(recipe));
      const at = (number: number) => (step = number);
      const run = { control, files, cache, principal, build, recipe, log, signal, timeoutMs: mostMs, at };
      const { snapshot, config } = await runBuild(run).catch((error: unknown) => {
        throw step === 0 && !isDockerfile(recipe) ? explained(error, recipe.from) : error;
      });
      for (const name of build.names)
        await control.saveTemplate(
          principal,
          name,
          { snapshot, replace: true, ...(config && { config }) },
          { keepNetwork: true },
        );
      log.add('info', `${build.names.join(', ')} is ready`);
      await builds.ended(build.id, { snapshot }, log.entries, now());
      await retire(principal);
      await cache.trim();
    } catch (error) {
      const why = closing.signal.aborted
        ? new CayError('unavailable', 'The server was stopped while this was being built')
        : cancel.signal.aborted
          ? new CayError('cancelled', 'The build was cancelled')
          : deadline.aborted
            ? new CayError('deadline_exceeded', `The build took longer than ${Math.round(mostMs / 1000)} s`)
            : error;
      const failure = failureOf(why, step, isDockerfile(given) ? Math.max(step, 1) : given.steps.length);
      log.add('error', failure.message);
      await builds.ended(build.id, { failure }, log.entries, now());
      if (!isCayError(why)) onError(error);
    }
  }

  /** Removes snapshots that no template is made of any more, unless sandboxes need them. */
  async function retire(principal: Principal): Promise<void> {
    for (const snapshot of await builds.superseded(principal.project)) {
      try {
        await control.removeSnapshot(principal, snapshot);
        await builds.dropped(snapshot);
      } catch (error) {
        if (isCayError(error, 'not_found')) await builds.dropped(snapshot);
        else if (!isCayError(error, 'failed_precondition') && !isCayError(error, 'conflict')) onError(error);
      }
    }
    await prune(records, principal.project);
  }

  async function prune(on: Tables, project: string): Promise<void> {
    const waitingBeforeMs = now() - WAITING_MS;
    await on.builds.prune(project, { keep: KEPT, keepLogs: KEPT_LOGS, waitingBeforeMs });
  }

  const verbs: Builds = {
    files,

    async buildDockerfile(principal, given) {
      const { name, tags, limits, noCache, ...rest } = BuildTemplateSchema.parse(given);
      const recipe: DockerfileRecipe = { ...rest, caching: noCache ? 'refresh' : 'use' };
      planOf(recipe, thisArchitecture());
      if (recipe.context !== undefined) await files.pathOf(principal.project, recipe.context);
      const [template = name] = name.split(':');
      const names = [...new Set([name, ...tags.map((tag) => `${template}:${tag}`)])];
      const { id } = await verbs.request(principal, { template, names, ...(limits && { limits }) });
      return verbs.start(principal, id, recipe);
    },

    async request(principal, { template, names, limits = {}, digest }) {
      const allowed = SomeLimitsSchema.safeParse(limits);
      if (!allowed.success)
        throw new CayError(
          'invalid_argument',
          `The limits are not valid: ${allowed.error.issues[0]?.message}`,
        );
      const templates = await control.templates(principal);
      const brought = templates.find(({ name, snapshot }) => snapshot === null && names.includes(name));
      if (brought)
        throw new CayError('already_exists', `A template named "${brought.name}" comes with the server`);
      const known = new Set(templates.map(({ name }) => name));
      // Checked again when they are saved; a refusal only then would waste the build.
      const more = names.filter((name) => !known.has(name)).length;
      if (more > 0) await quota?.requireRoom(records, principal.project, 'templates', more);
      const build: Build = {
        id: randomUUID(),
        project: principal.project,
        template,
        names: [...names],
        limits,
        digest: digest ?? null,
        state: 'waiting',
        start: null,
        ready: null,
        snapshot: null,
        failure: null,
        createdAtMs: now(),
        endedAtMs: null,
      };
      await records.transaction(async (tx) => {
        await prune(tx, principal.project);
        if ((await tx.builds.unfinished(principal.project)).length >= MOST_OPEN)
          throw new CayError(
            'resource_exhausted',
            `${MOST_OPEN} builds of the project are under way already`,
          );
        await tx.builds.insert(build);
      });
      return build;
    },

    async start(principal, id, recipe) {
      const build = await records.transaction(async (tx) => {
        const waiting = await find(tx, principal, id);
        if (waiting.state !== 'waiting' || closing.signal.aborted)
          throw new CayError('failed_precondition', `Cannot start build "${id}": it is ${waiting.state}`);
        await tx.builds.started(id, commandsOf(recipe));
        return waiting;
      });
      const log = buildLog(now, isDockerfile(recipe) ? Object.values(recipe.secrets) : []);
      const cancel = new AbortController();
      const ended = permits
        .run(() => perform(principal, build, recipe, { log, cancel }))
        .catch(onError)
        .finally(() => running.delete(id));
      running.set(id, { log, ended, cancel });
      return find(records, principal, id);
    },

    list: (principal, limit) => builds.list(principal.project, limit),

    async cancel(principal, id) {
      const build = await find(records, principal, id);
      if (build.state === 'waiting')
        await builds.ended(
          id,
          { failure: { message: 'The build was cancelled', step: 0, steps: 0 } },
          [],
          now(),
        );
      const one = running.get(id);
      one?.cancel.abort();
      await one?.ended;
      return find(records, principal, id);
    },

    async *follow(principal, id, { offset, signal }) {
      await find(records, principal, id);
      const one = running.get(id);
      const left = new Promise<void>((resolve) =>
        signal.addEventListener('abort', () => resolve(), { once: true }),
      );
      let at = offset;
      // It is among those that run until it has ended.
      while (one && running.get(id) === one && !signal.aborted) {
        const more = one.log.more();
        for (; at < one.log.entries.length; at++) yield one.log.entries[at]!;
        await Promise.race([more, one.ended, left]);
      }
      if (!signal.aborted) yield* (one?.log.entries ?? (await builds.log(id))).slice(at);
    },

    get: (principal, id) => find(records, principal, id),

    async finished(principal, id) {
      await running.get(id)?.ended;
      const build = await find(records, principal, id);
      if (build.state === 'ready') return build;
      throw new CayError('failed_precondition', build.failure?.message ?? `Build "${id}" is ${build.state}`);
    },

    async log(principal, id, { offset, limit }) {
      await find(records, principal, id);
      return (running.get(id)?.log.entries ?? (await builds.log(id))).slice(offset, offset + limit);
    },

    async of(principal, snapshot) {
      const build = await builds.of(snapshot);
      return build?.project === principal.project ? build : undefined;
    },

    async settled(principal, sandbox) {
      const build = sandbox.base === null ? undefined : await builds.of(sandbox.base);
      if (build?.project !== principal.project || build.start === null || build.ready === null) return;
      if ((await control.getSnapshot(principal, sandbox.base as SnapshotId)).memory) return;
      const { guest, row } = await control.enter(principal, sandbox.id);
      const { env, workdir, user } = row.spec;
      await awaitReady(
        { guest, surroundings: { env, workdir, user }, signal: closing.signal },
        readyOf(build.ready),
        SETTLE_MS,
      );
    },

    async close() {
      closing.abort();
      await Promise.all([...running.values()].map(({ ended }) => ended));
    },
  };
  return verbs;
}

const commandsOf = ({ start, ready }: AnyRecipe) => ({
  start: start ?? null,
  ready: ready === undefined ? null : recordedReady(ready),
});

function failureOf(error: unknown, step: number, steps: number): BuildFailure {
  if (!isCayError(error)) return { message: 'Internal error', step, steps };
  const { command, exitCode, unknownUser } = error.details;
  return {
    message: error.hint === undefined ? error.message : `${error.message} (${error.hint})`,
    step,
    steps,
    ...(typeof command === 'string' && { command }),
    ...(typeof exitCode === 'number' && { exitCode }),
    ...(typeof unknownUser === 'string' && { unknownUser }),
  };
}
