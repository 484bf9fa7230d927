/**
 * The router: several backends behind one contract. Each sandbox is on one platform, which does everything
 * for it.
 *
 * It keeps nothing of its own. Where something is its platform knows, and whoever has records says so
 * beforehand (`place`). The platforms never hear of each other: a spec comes to them without its `platform`,
 * so that a backend has the same sandboxes with a router before it and without.
 */
import {
  ABILITIES,
  CayError,
  type Ability,
  type Capabilities,
  type Platform,
  type SandboxId,
  type SandboxSpec,
} from '@cay/sdk/protocol';
import {
  canFreeze,
  canHibernate,
  canMeasure,
  canResize,
  canSuspend,
  canSweep,
  type Backend,
  type CallOptions,
  type Freezing,
  type Hibernating,
  type Measuring,
  type Observation,
  type Orphan,
  type Resizing,
  type Routing,
  type Snapshotting,
  type Suspending,
  type Sweeping,
} from '../backend.ts';
import { requireSandboxId } from '../support/check.ts';
import { platformByLabels, type PlatformRule } from './platform-rules.ts';
import { openPlatforms, ownSpec, type PlatformSource } from './platforms.ts';
import { leastCapacity } from './least-capacity.ts';
import { routedSnapshots } from './composite-snapshots.ts';
import { locations, type Place } from './locations.ts';

export interface RouterOptions {
  /** The first is the default. */
  platforms: readonly PlatformSource[];
  /** The first that fits chooses for a sandbox that names no platform. */
  rules?: readonly PlatformRule[];
  onError?(error: unknown): void;
}

export type RouterBackend = Backend &
  Routing &
  Resizing &
  Freezing &
  Suspending &
  Snapshotting &
  Hibernating &
  Measuring &
  Sweeping;

export async function routerBackend({
  platforms: sources,
  rules = [],
  onError = () => {},
}: RouterOptions): Promise<RouterBackend> {
  const names = sources.map(({ name }) => name);
  const stray = rules.find(({ platform }) => !names.includes(platform));
  if (stray) {
    throw new CayError(
      'invalid_argument',
      `The rule for label "${stray.label}" names platform "${stray.platform}", which is none`,
      {
        hint: `Known platforms: ${names.join(', ')}`,
      },
    );
  }
  const platforms = await openPlatforms(sources, onError);
  const where = locations(platforms);

  /** Where it is, or the default platform, which then says that it does not exist. */
  async function at(id: SandboxId): Promise<Place> {
    return (
      (await where.sandbox(id)) ?? { name: platforms.first, backend: await platforms.get(platforms.first) }
    );
  }

  async function able<T extends Backend>(
    id: SandboxId,
    can: (backend: Backend) => backend is T,
    verb: string,
  ): Promise<T> {
    const { name, backend } = await at(id);
    if (can(backend)) return backend;
    throw new CayError('unsupported', `Cannot ${verb} sandbox "${id}": platform "${name}" cannot do that`, {
      details: { platform: name },
    });
  }

  /**
   * Where a sandbox of this spec is or will be. One that is named need not be looked for on the others, which
   * may be away.
   */
  async function placeOf(id: SandboxId, { platform }: SandboxSpec): Promise<Place> {
    requireSandboxId(id);
    if (platform !== undefined) platforms.require(platform);
    const known =
      platform === undefined || (where.told(id) ?? platform) !== platform
        ? await where.sandbox(id)
        : undefined;
    if (known && platform !== undefined && (await known.backend.observe(id)).phase !== 'absent') {
      throw new CayError(
        'already_exists',
        `Cannot make sandbox "${id}" on platform "${platform}": it exists on "${known.name}"`,
        {
          details: { platform: known.name },
        },
      );
    }
    const name = platform ?? known?.name ?? platforms.first;
    const place = { name, backend: await platforms.get(name) };
    where.note(id, name);
    return place;
  }

  const router: RouterBackend = {
    name: 'router',
    platforms: platforms.names,
    platform: platforms.get,
    place: where.note,

    choose: ({ platform, labels }) =>
      platform === undefined
        ? (platformByLabels(rules, labels) ?? platforms.first)
        : platforms.require(platform),

    measures(name) {
      const backend = platforms.opened(name);
      return backend !== undefined && canMeasure(backend);
    },

    async capabilities(options) {
      const answers = await platforms.each((backend) => backend.capabilities(options));
      const all = answers.map(({ name, ...each }): Platform =>
        'answer' in each ? { name, capabilities: each.answer } : { name, away: each.away.message },
      );
      const known = all.flatMap(({ capabilities }) => (capabilities ? [capabilities] : []));
      const { abilities, notes } = all[0]!.capabilities ?? nothing(all[0]!);
      return {
        backend: 'router',
        runtimes: [...new Set(known.flatMap(({ runtimes }) => runtimes))],
        templates: [...new Set(known.flatMap(({ templates }) => templates))],
        abilities,
        notes,
        platforms: all,
      };
    },

    async validate(spec, options) {
      const backend = await platforms.get(spec.platform ?? platforms.first);
      await backend.validate(ownSpec(spec), options);
    },

    async ensure(id, spec, options) {
      const { backend } = await placeOf(id, spec);
      return backend.ensure(id, ownSpec(spec), options);
    },

    async observe(id, options) {
      const { backend } = await at(id);
      return backend.observe(id, options);
    },

    async list(options) {
      const answers = await platforms.each((backend) => backend.list(options));
      return answers.flatMap((each): Observation[] => {
        if ('answer' in each) return each.answer;
        throw each.away;
      });
    },

    watch: (options) => platforms.changes.subscribe(options),

    async connect(id, options) {
      return (await at(id)).backend.connect(id, options);
    },

    async stats(id, options) {
      return (await at(id)).backend.stats(id, options);
    },

    async stop(id, options) {
      return (await at(id)).backend.stop(id, options);
    },

    async remove(id, options) {
      await (await at(id)).backend.remove(id, options);
      where.forget(id);
    },

    async resize(id, limits, options) {
      await (await able(id, canResize, 'change the limits of')).resize(id, limits, options);
    },

    async freeze(id, options) {
      await (await able(id, canFreeze, 'freeze')).freeze(id, options);
    },

    async thaw(id, options) {
      await (await able(id, canFreeze, 'thaw')).thaw(id, options);
    },

    async suspend(id, options) {
      return (await able(id, canSuspend, 'suspend')).suspend(id, options);
    },

    async hibernate(id, options) {
      return (await able(id, canHibernate, 'hibernate')).hibernate(id, options);
    },

    ...routedSnapshots({ platforms, where, placeOf }),

    async capacity(options) {
      const answers = await platforms.each(async (backend) =>
        canMeasure(backend) ? backend.capacity(options) : {},
      );
      return leastCapacity(answers.flatMap((each) => ('answer' in each ? [each.answer] : [])));
    },

    async sweep(options?: CallOptions & { dryRun?: boolean }) {
      const answers = await platforms.each(async (backend) =>
        canSweep(backend) ? backend.sweep(options) : [],
      );
      return answers.flatMap((each): Orphan[] => ('answer' in each ? each.answer : []));
    },

    close: platforms.close,
  };
  return router;
}

/** Nothing that is not seen to work is promised. */
function nothing({ name, away }: Platform): Pick<Capabilities, 'abilities' | 'notes'> {
  const each = <T>(value: T) =>
    Object.fromEntries(ABILITIES.map((ability) => [ability, value])) as Record<Ability, T>;
  return { abilities: each(false), notes: each(`Platform "${name}" does not answer: ${away}`) };
}
