import { BuildTemplateSchema, CayError, type SnapshotId } from '@cay/sdk/protocol';
import type { Records } from '../../../records/records.ts';
import type { Tables } from '../../../records/tables/tables.ts';
import { Semaphore } from '../../../lib/semaphore.ts';
import type { Principal } from '../../tenants/principal.ts';
import type { QuotaLedger } from '../../tenants/quota-ledger.ts';
import { planOf, thisArchitecture } from '../dockerfile/run-dockerfile.ts';
import { awaitReady, readyOf } from './await-ready.ts';
import { buildFiles, type BuildFilesOptions } from './build-files.ts';
import { clearBuild } from './build-leftovers.ts';
import { buildLog, type BuildLog } from './build-log.ts';
import type { BuildParts } from './build-parts.ts';
import type { Build, Builds, DockerfileRecipe } from './build.ts';
import { commandsOf, performBuild } from './perform-build.ts';
import { requestBuild } from './request-build.ts';
import { isDockerfile, type BuildControl } from './run-build.ts';

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
const TIMEOUT_MS = 30 * 60_000;
const SETTLE_MS = 60_000;

interface Running {
  log: BuildLog;
  ended: Promise<void>;
  cancel: AbortController;
}

/** Opens builds. Those that an earlier server left unfinished have failed. */
export async function openBuilds(options: BuildsOptions): Promise<Builds> {
  const { control, records, quota, timeoutMs = TIMEOUT_MS, now = Date.now, onError = () => {} } = options;
  const { builds } = records;
  const files = buildFiles(options.directory, { quota, ...options.files });
  const permits = new Semaphore(AT_ONCE);
  const closing = new AbortController();
  const parts: BuildParts = {
    control,
    records,
    files,
    timeoutMs,
    cache: options.cache ?? {},
    closing: closing.signal,
    now,
    onError,
  };
  const running = new Map<string, Running>();

  for (const build of await builds.unfinished()) {
    if (build.state === 'waiting') continue;
    const failure = { message: 'The server was stopped while this was being built', step: 0, steps: 0 };
    await clearBuild(parts, build);
    await builds.ended(build.id, { failure }, [], now());
  }

  async function find(on: Tables, principal: Principal, id: string): Promise<Build> {
    const build = await on.builds.get(id);
    if (build?.project === principal.project) return build;
    throw new CayError('not_found', `Build "${id.slice(0, 80)}" does not exist`);
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

    request: (principal, request) => requestBuild({ ...parts, quota }, principal, request),

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
        .run(() => performBuild(parts, principal, build, { recipe, log, cancelled: cancel.signal }))
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
      const { message = `Build "${id}" is ${build.state}`, hint } = build.failure ?? {};
      throw new CayError('failed_precondition', message, { hint });
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
